"""Scoring rules in transformers' Trainer: an encoder-decoder and a causal model learn to reverse digits.

python examples/finetune_seq2seq.py [STEPS], with pip install 'mlmfast[torch]' accelerate. The models are tiny
and start from random weights. Printed: log-loss, Brier score and accuracy over the tokens of 256 answers that
are not in the training data, before and after.
"""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from mlmfast.functional import scoring_rule_loss
from mlmfast.training.huggingface import ScoringRule, ScoringRuleLoss

DIGITS, LENGTH, NUM_TRAIN, NUM_HELD_OUT = 10, 4, 4096, 256
PAD, BEGIN, END, FIRST_DIGIT = range(4)
VOCAB_SIZE = FIRST_DIGIT + DIGITS
RULES = (ScoringRule("log"), ScoringRule("brier"), ScoringRule("spherical", smoothing=0.05))


class Reversals(Dataset):
    """The digits of a number, and the same digits backwards; joined for a causal model."""

    def __init__(self, numbers: torch.Tensor, *, joined: bool) -> None:
        powers = 10 ** torch.arange(LENGTH - 1, -1, -1)
        digits = numbers[:, None] // powers % 10 + FIRST_DIGIT
        answer = torch.cat([digits.flip(1), torch.full((len(digits), 1), END)], dim=1)
        self.input_ids, self.labels = digits, answer
        if joined:
            question = torch.cat([digits, torch.full((len(digits), 1), BEGIN)], dim=1)
            self.input_ids = torch.cat([question, answer], dim=1)
            self.labels = torch.cat([torch.full_like(question, -100), answer], dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}


class ScoringRuleTrainer(ScoringRuleLoss, Trainer):
    """All it takes: the losses before the Trainer, and a rule."""


def encoder_decoder() -> BartForConditionalGeneration:
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=VOCAB_SIZE,
            d_model=64,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            max_position_embeddings=16,
            dropout=0.0,
            pad_token_id=PAD,
            bos_token_id=BEGIN,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
            forced_eos_token_id=None,
        )
    )


def causal() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB_SIZE,
            n_positions=16,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=BEGIN,
            eos_token_id=END,
        )
    )


def figures(model: torch.nn.Module, held_out: Reversals, *, joined: bool) -> str:
    """Log-loss, Brier score (0 is perfect) and accuracy over the answers' tokens."""
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=held_out.input_ids, labels=held_out.labels).logits
    labels = held_out.labels
    if joined:
        logits, labels = logits[:, LENGTH:-1], labels[:, LENGTH + 1 :]
    log_loss = scoring_rule_loss(logits, labels, rule="log")
    brier = scoring_rule_loss(logits, labels, rule="brier") + 1
    accuracy = (logits.argmax(-1) == labels).float().mean()
    return f"{log_loss:.3f} | {brier:.3f} | {accuracy:.1%}"


def main(steps: int) -> None:
    print("| model | rule | log-loss | Brier | accuracy | log-loss | Brier | accuracy |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for make, joined in ((encoder_decoder, False), (causal, True)):
        numbers = torch.randperm(10**LENGTH, generator=torch.Generator().manual_seed(0))
        held_out = Reversals(numbers[:NUM_HELD_OUT], joined=joined)
        train = Reversals(numbers[NUM_HELD_OUT : NUM_HELD_OUT + NUM_TRAIN], joined=joined)
        for rule in RULES:
            torch.manual_seed(0)
            model = make()
            before = figures(model, held_out, joined=joined)
            with tempfile.TemporaryDirectory() as folder:
                arguments = TrainingArguments(
                    output_dir=folder,
                    max_steps=steps,
                    per_device_train_batch_size=64,
                    learning_rate=3e-3,
                    lr_scheduler_type="cosine",
                    report_to=[],
                    save_strategy="no",
                    logging_strategy="no",
                    disable_tqdm=True,
                    use_cpu=True,
                    seed=0,
                )
                trainer = ScoringRuleTrainer(model=model, args=arguments, train_dataset=train)
                trainer.scoring_rule = rule
                trainer.remove_callback(PrinterCallback)
                trainer.train()
            after = figures(model, held_out, joined=joined)
            print(f"| {make.__name__} | {rule.name} | {before} | {after} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
