"""Tiny models of several kinds with seeded random weights, for what must hold whatever the weights."""

from __future__ import annotations

import torch
import transformers

VOCAB_SIZE = 13
LENGTH = 5
TWO_SIDED = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "dropout": 0.0,
}
ONE_SIDED = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MAKERS = {
    "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**TWO_SIDED)),
    "marian": lambda: transformers.MarianMTModel(transformers.MarianConfig(**TWO_SIDED)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCAB_SIZE,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=2,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB_SIZE,
            n_embd=16,
            n_layer=1,
            n_head=2,
            n_positions=16,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        )
    ),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**ONE_SIDED)),
    "bert": lambda: transformers.BertForMaskedLM(
        transformers.BertConfig(**ONE_SIDED, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ),
}
CAUSAL = ("gpt2", "llama")


def made(name: str, seed: int = 0):
    torch.manual_seed(seed)
    model = MAKERS[name]()
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCAB_SIZE, (4, LENGTH), generator=random)
    labels = torch.randint(3, VOCAB_SIZE, (4, LENGTH), generator=random)
    labels[0, 2:4] = labels[1, 0] = labels[2, -1] = -100
    return {"input_ids": ids, "labels": labels}
