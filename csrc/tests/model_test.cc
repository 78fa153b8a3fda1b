// Reading models: the tiny folders of tests/data/models (argv[1]), and edited copies of them.
#include <sys/stat.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"
#include "model_testing.h"
#include "safetensors.h"

using namespace mlmfast;

namespace {

struct Expected {
  const char* folder;
  int64_t vocab_size, embedding_size, hidden_size, num_layers, num_heads, intermediate_size, type_vocab_size;
  int64_t max_length, position_offset;
  size_t num_tensors;  // roles of layers that are there, tied decoder included
};

// From the config.json and the tensors of each folder.
constexpr Expected kGood[] = {
    {"bert", 320, 32, 32, 2, 2, 48, 2, 64, 0, 5 + 2 * 16 + 6},
    {"bert-legacy-names", 320, 32, 32, 2, 2, 48, 2, 64, 0, 5 + 2 * 16 + 6},
    {"bert-sharded", 320, 32, 32, 2, 2, 48, 2, 64, 0, 5 + 2 * 16 + 6},
    {"bert-mask-is-unk", 320, 32, 32, 2, 2, 48, 2, 64, 0, 5 + 2 * 16 + 6},
    {"bert-no-mask-token", 320, 32, 32, 2, 2, 48, 2, 64, 0, 5 + 2 * 16 + 6},
    {"roberta", 420, 32, 32, 2, 4, 48, 1, 64, 2, 5 + 2 * 16 + 6},
    {"xlm-roberta", 384, 32, 32, 2, 2, 48, 1, 64, 2, 5 + 2 * 16 + 6},
    {"camembert", 387, 32, 32, 2, 2, 48, 1, 64, 2, 5 + 2 * 16 + 6},
    {"sapiens-vh", 25, 128, 128, 4, 8, 256, 1, 144, 2, 5 + 4 * 16 + 6},
    {"distilbert", 320, 36, 36, 3, 3, 56, 0, 64, 0, 4 + 3 * 16 + 6},
    {"electra", 320, 40, 32, 2, 2, 48, 2, 64, 0, 7 + 2 * 16 + 6},
    {"albert", 354, 24, 48, 3, 4, 80, 2, 64, 0, 7 + 3 * 16 + 6},
    {"esm2", 33, 32, 32, 2, 2, 48, 0, 64, 0, 2 + 2 * 16 + 2 + 6},
    {"modernbert", 408, 32, 32, 4, 2, 48, 0, 96, 0, 2 + 4 * 9 - 1 + 1 + 4},
};

int64_t role_size(const Weights& weights, Role role, int64_t layer = 0) {
  return weights.has(role, layer) ? weights.tensor(role, layer).size() : 0;
}

void check_good_folder(const std::string& models, const Expected& expected) {
  const std::string name = expected.folder, folder = models + "/" + name;
  const ModelSpec spec = read_model_spec(folder);
  expect_equal(spec.vocab_size, expected.vocab_size, name + " vocab_size");
  expect_equal(spec.embedding_size, expected.embedding_size, name + " embedding_size");
  expect_equal(spec.hidden_size, expected.hidden_size, name + " hidden_size");
  expect_equal(spec.num_layers, expected.num_layers, name + " num_layers");
  expect_equal(spec.num_heads, expected.num_heads, name + " num_heads");
  expect_equal(spec.intermediate_size, expected.intermediate_size, name + " intermediate_size");
  expect_equal(spec.type_vocab_size, expected.type_vocab_size, name + " type_vocab_size");
  expect_equal(spec.max_length, expected.max_length, name + " max_length");
  expect_equal(spec.position_offset, expected.position_offset, name + " position_offset");
  expect_equal(spec.position_skip_id, expected.position_offset - 1, name + " position_skip_id");
  expect_equal(static_cast<int64_t>(spec.attention.size()), spec.num_layers, name + " attention");

  const Weights weights(folder, spec);
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size, embedding = spec.embedding_size;
  expect_equal(role_size(weights, Role::word_embeddings), spec.vocab_size * embedding, name + " embeddings");
  expect_equal(role_size(weights, Role::decoder_weight), spec.vocab_size * embedding, name + " decoder");
  expect_equal(role_size(weights, Role::decoder_bias), spec.vocab_size, name + " decoder bias");
  expect_equal(role_size(weights, Role::head_dense_weight), embedding * hidden, name + " head");
  expect_equal(role_size(weights, Role::head_norm_weight), embedding, name + " head norm");
  const int64_t last = spec.num_layers - 1;
  for (Role role :
       {Role::query_weight, Role::key_weight, Role::value_weight, Role::attention_output_weight}) {
    expect_equal(role_size(weights, role, last), hidden * hidden, name + " attention");
  }
  expect_equal(role_size(weights, Role::attention_norm_weight, last), hidden, name + " attention norm");
  expect_equal(role_size(weights, Role::mlp_input_weight, last), inner * hidden, name + " mlp input");
  expect_equal(role_size(weights, Role::mlp_output_weight, last), inner * hidden, name + " mlp output");
  expect_equal(weights.tensor(Role::mlp_output_weight, last).columns, inner, name + " mlp output inputs");
  expect_refusal<std::out_of_range>([&] { weights.tensor(Role::query_weight, spec.num_layers); }, "no tensor",
                                    name + " beyond the last layer");
  expect(weights.has(Role::query_weight, spec.num_layers) == false, name + " beyond the last layer");

  size_t num_tensors = 0;
  bool finite = true;
  for_each_place(spec, [&](Role role, int64_t layer) {
    if ((layer > 0 && !is_layer_role(role)) || !weights.has(role, layer)) return;
    ++num_tensors;
    for (float value : weights.floats(role, layer)) finite &= std::isfinite(value);
  });
  expect_equal(num_tensors, expected.num_tensors, name + " tensors");
  expect(finite, name + " finite weights");
}

// What families differ in beside sizes.
void check_families(const std::string& models) {
  const ModelSpec bert = read_model_spec(models + "/bert");
  expect(bert.position == Position::absolute && bert.norm_placement == NormPlacement::post, "bert layers");
  expect(bert.norm_eps == 1e-12 && bert.embedding_norm && !bert.final_norm && !bert.gated, "bert norms");
  expect(bert.activation == Activation::gelu && bert.tied_decoder && !bert.shared_layers, "bert activation");
  expect(!bert.attention[1].is_local && !bert.token_dropout, "bert attention");

  const ModelSpec albert = read_model_spec(models + "/albert");
  expect(albert.shared_layers && albert.embedding_projection, "albert sharing");
  expect(albert.activation == Activation::gelu_tanh && albert.head_activation == Activation::gelu_tanh,
         "albert activation");
  const Weights albert_weights(models + "/albert", albert);
  expect(
      albert_weights.tensor(Role::query_weight, 2).data == albert_weights.tensor(Role::query_weight, 0).data,
      "albert layers are one");

  const ModelSpec electra = read_model_spec(models + "/electra");
  expect(electra.embedding_projection && !electra.shared_layers, "electra projection");
  expect_equal(Weights(models + "/electra", electra).tensor(Role::embedding_projection_weight).rows,
               electra.hidden_size, "electra projection outputs");

  const ModelSpec esm = read_model_spec(models + "/esm2");
  expect(esm.position == Position::rotary && esm.norm_placement == NormPlacement::pre, "esm layers");
  expect(esm.token_dropout && esm.mask_token_id == 32, "esm token dropout");
  expect(!esm.embedding_norm && esm.first_attention_norm && esm.final_norm && esm.norm_bias, "esm norms");
  expect(esm.attention[1].rope_theta == 10000 && esm.norm_eps == 1e-5, "esm theta");
  const std::vector<float> frequencies = Weights(models + "/esm2", esm).floats(Role::inverse_frequencies);
  expect_equal(frequencies.size(), size_t{8}, "esm frequencies");
  expect(std::abs(frequencies[1] - std::pow(10000.0, -2.0 / 16)) < 1e-3, "esm frequency");

  const ModelSpec modern = read_model_spec(models + "/modernbert");
  expect(modern.position == Position::rotary && modern.norm_placement == NormPlacement::pre,
         "modernbert layers");
  expect(modern.gated && !modern.norm_bias && !modern.attention_bias && !modern.mlp_bias,
         "modernbert biases");
  expect(!modern.first_attention_norm && modern.embedding_norm && modern.final_norm, "modernbert norms");
  expect(!modern.head_dense_bias && modern.decoder_bias, "modernbert head");
  for (int64_t i = 0; i < 4; ++i) {
    const AttentionWindow& window = modern.attention[i];
    expect_equal(window.is_local, i % 3 != 0, "modernbert local layer");
    expect_equal(window.rope_theta, i % 3 == 0 ? 160000.0 : 10000.0, "modernbert theta");
    expect(!window.is_local || window.half_window == 8, "modernbert window");
  }
}

// Fused tensors are handed out as their parts.
void check_fused(const std::string& models) {
  const std::string folder = models + "/modernbert", path = folder + "/model.safetensors";
  const ModelSpec spec = read_model_spec(folder);
  const Weights weights(folder, spec);
  const MappedFile file(path);
  const auto tensors = read_safetensors(file, path);
  const auto joined = [&](std::initializer_list<Role> roles) {
    std::vector<float> values;
    for (Role role : roles) {
      const std::vector<float> part = weights.floats(role, 1);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  };
  const auto same = [&](const std::vector<float>& values, const char* name) {
    const StoredTensor& tensor = tensors.at(name);
    return values.size() * sizeof(float) == tensor.num_bytes &&
           std::memcmp(values.data(), tensor.data, tensor.num_bytes) == 0;
  };
  expect(same(joined({Role::query_weight, Role::key_weight, Role::value_weight}),
              "model.layers.1.attn.Wqkv.weight"),
         "query, key, value");
  expect(same(joined({Role::mlp_input_weight, Role::mlp_gate_weight}), "model.layers.1.mlp.Wi.weight"),
         "mlp input, gate");
}

// Other layouts of one model are the same model.
void check_layouts(const std::string& models) {
  const ModelSpec spec = read_model_spec(models + "/bert");
  const Weights expected(models + "/bert", spec);
  for (const char* name : {"bert-legacy-names", "bert-sharded"}) {
    const Weights weights(models + "/" + name, spec);
    for_each_place(spec, [&](Role role, int64_t layer) {
      expect_equal(weights.has(role, layer), expected.has(role, layer), std::string(name) + " tensors");
      if (!expected.has(role, layer)) return;
      expect(weights.floats(role, layer) == expected.floats(role, layer), std::string(name) + " values");
    });
  }
}

void check_refused_folders(const std::string& models) {
  const std::pair<const char*, const char*> refused[] = {
      {"bert-decoder", "is_decoder = true; expected a masked language model"},
      {"bert-no-head", "cls.predictions.transform.dense.weight, cls.predictions.transform.dense.bias, "},
      {"bert-partial", "bert.encoder.layer.1.attention.self.query.weight"},
      {"bert-no-weights", "no weights; expected model.safetensors or model.safetensors.index.json"},
      {"bert-pickle-only", "only pickled weights (pytorch_model.bin)"},
      {"bert-softcap", "final_logit_softcapping = 30"},
      {"bert-two-biases",
       "twice, as cls.predictions.bias and cls.predictions.decoder.bias, and the two differ"},
      {"electra-discriminator", "generator_predictions.dense.weight"},
      {"deberta-v2", "model_type = \"deberta-v2\"; expected one of albert, bert, "},
      {"deberta-v2-legacy", "model_type = \"deberta-v2\""},
      {"gpt2", "model_type = \"gpt2\""},
      {"llama", "model_type = \"llama\""},
      {"mpnet", "model_type = \"mpnet\""},
      {"no-such-folder", "no config.json"},
  };
  for (const auto& [name, message] : refused) {
    const std::string folder = models + "/" + name;
    expect_refusal<ModelError>([&] { Weights(folder, read_model_spec(folder)); }, message, name);
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  expect(at != std::string::npos, "the tests' own edit of " + from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

struct Edit {
  const char *folder, *from, *to, *message;
};

// Edits of config.json that change what is computed: refused by the field's name and value.
constexpr Edit kRefusedEdits[] = {
    {"bert", "\"gelu\"", "\"tanh\"", "hidden_act = \"tanh\"; expected gelu, gelu_new, relu or silu"},
    {"bert", "\"absolute\"", "\"relative_key\"",
     "position_embedding_type = \"relative_key\"; expected absolute"},
    {"bert", "\"vocab_size\": 320", "\"vocab_size\": 319",
     "bert.embeddings.word_embeddings.weight is F32 [320, 32]"},
    {"bert", "\"vocab_size\": 320", "\"vocab_size\": \"320\"",
     "vocab_size = \"320\"; expected a whole number"},
    {"bert", "\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size = 0; expected a whole number from 1"},
    {"bert", "\"num_attention_heads\": 2", "\"num_attention_heads\": 3",
     "num_attention_heads = 3; expected a divisor"},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
     "bert.encoder.layer.2.attention.self.query"},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "does not have: bert.encoder.layer.1."},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2e9", "num_hidden_layers = 2e+09"},
    {"bert", "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": -1",
     "layer_norm_eps = -1; expected a number above 0"},
    {"bert", "\"vocab_size\"", "\"quantization_config\": {\"bits\": 8}, \"vocab_size\"",
     "quantization_config = {\"bits\""},
    {"bert", "\"vocab_size\"", "\"vocabulary\"", "vocab_size is missing"},
    {"bert", "BertForMaskedLM", "BertLMHeadModel",
     "architectures = [\"BertLMHeadModel\"]; expected a masked"},
    {"bert", "\"bert\"", "7", "model_type = 7; expected a string"},
    {"bert", "\"vocab_size\"", "\"tie_word_embeddings\": false, \"vocab_size\"",
     "cls.predictions.decoder.weight not among"},
    {"roberta", "\"max_position_embeddings\": 66", "\"max_position_embeddings\": 2",
     "max_position_embeddings = 2; expected more"},
    {"roberta", "\"pad_token_id\": 1", "\"pad_token_id\": -1", "pad_token_id = -1"},
    {"distilbert", "\"dim\": 36", "\"dim\": 35", "n_heads = 3; expected a divisor"},
    {"electra", "\"embedding_size\": 40", "\"embedding_size\": 32",
     "electra.embeddings.word_embeddings.weight is F32 [320, 40]"},
    {"albert", "\"num_hidden_groups\": 1", "\"num_hidden_groups\": 3", "num_hidden_groups = 3; expected 1"},
    {"albert", "\"inner_group_num\": 1", "\"inner_group_num\": 2", "inner_group_num = 2; expected 1"},
    {"esm2", "\"mask_token_id\": 32", "\"mask_token_id\": null",
     "mask_token_id = null; expected a whole number"},
    {"esm2", "\"is_folding_model\": false", "\"is_folding_model\": true", "is_folding_model = true"},
    {"esm2", "\"rotary\"", "\"relative_key\"",
     "position_embedding_type = \"relative_key\"; expected absolute or rotary"},
    {"esm2", "\"emb_layer_norm_before\": false", "\"emb_layer_norm_before\": true",
     "esm.embeddings.layer_norm.weight"},
    {"modernbert", "\"vocab_size\"", "\"sliding_window\": 8, \"vocab_size\"", "sliding_window = 8"},
    {"modernbert", "\"vocab_size\"", "\"rope_scaling\": {\"type\": \"yarn\"}, \"vocab_size\"",
     "rope_scaling = {\"type\": \"yarn\"}"},
    {"modernbert", "\"vocab_size\"", "\"layer_types\": [\"full_attention\"], \"vocab_size\"",
     "layer_types = [\"full_attention\"]; expected"},
    {"modernbert", "\"vocab_size\"",
     "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}, \"vocab_size\"",
     "rope_parameters: full_attention: rope_type = \"yarn\"; expected default"},
    {"modernbert", "\"vocab_size\"",
     "\"rope_parameters\": {\"sliding_attention\": {\"type\": \"linear\"}}, \"vocab_size\"",
     "rope_parameters: sliding_attention: type = \"linear\"; expected default"},
    {"modernbert", "\"norm_bias\": false", "\"norm_bias\": true", "model.embeddings.norm.bias"},
    {"modernbert", "\"decoder_bias\": true", "\"decoder_bias\": false", "does not have: decoder.bias"},
    {"modernbert", "\"mlp_bias\": false", "\"mlp_bias\": \"no\"",
     "mlp_bias = \"no\"; expected true or false"},
    {"modernbert", "\"num_attention_heads\": 2", "\"num_attention_heads\": 32", "heads of an even size"},
};

void check_edits(const std::string& models, const TemporaryFolder& temporary) {
  for (const auto& [name, from, to, message] : kRefusedEdits) {
    const std::string folder = temporary.link_files_of(models + "/" + name);
    write_bytes(folder + "/config.json",
                replaced(read_bytes(models + "/" + name + "/config.json"), from, to));
    expect_refusal<ModelError>([&] { Weights(folder, read_model_spec(folder)); }, message,
                               std::string(name) + " with " + to);
  }
  const auto edited = [&](const std::string& name, const char* from, const char* to) {
    const std::string folder = temporary.link_files_of(models + "/" + name);
    write_bytes(folder + "/config.json",
                replaced(read_bytes(models + "/" + name + "/config.json"), from, to));
    return read_model_spec(folder);
  };
  const ModelSpec modern =
      edited("modernbert", "\"vocab_size\"",
             R"("layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
         "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e4},
                             "sliding_attention": null}, "vocab_size")");
  expect(modern.attention[0].is_local && !modern.attention[1].is_local && !modern.attention[2].is_local,
         "layer_types before global_attn_every_n_layers");
  expect(modern.attention[1].rope_theta == 5e4 && modern.attention[0].rope_theta == 10000, "rope_parameters");
  const ModelSpec esm1b = edited("esm2", "\"rotary\"", "\"absolute\"");
  expect(esm1b.position == Position::absolute && esm1b.position_offset == 2 && esm1b.position_skip_id == 1,
         "esm with absolute positions");
  expect_equal(Weights(temporary.path().string(), esm1b).tensor(Role::position_embeddings).rows, int64_t{66},
               "esm table of positions");
  expect(edited("bert", "\"gelu\"", "\"gelu_pytorch_tanh\"").head_activation == Activation::gelu_tanh,
         "gelu_tanh");
  expect(edited("roberta", "\"gelu\"", "\"relu\"").head_activation == Activation::gelu, "roberta head");
}

std::string replaced_everywhere(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Edits of the header of a weights file.
void check_headers_of_models(const std::string& models, const TemporaryFolder& temporary) {
  const std::string bytes = read_bytes(models + "/bert/model.safetensors");
  const size_t begin = data_begin(bytes);
  const auto with_header = [&](const std::string& header) {
    const std::string folder = temporary.link_files_of(models + "/bert"),
                      padding(begin - 8 - header.size(), ' ');
    write_bytes(folder + "/model.safetensors", bytes.substr(0, 8) + header + padding + bytes.substr(begin));
    return folder;
  };
  const std::string header = bytes.substr(8, begin - 8);
  const ModelSpec spec = read_model_spec(models + "/bert");
  const Weights expected(models + "/bert", spec);
  const Weights bare(with_header(replaced_everywhere(header, "\"bert.", "\"")), spec);
  for_each_place(spec, [&](Role role, int64_t layer) {
    expect_equal(bare.has(role, layer), expected.has(role, layer), "tensors without prefix");
    if (!expected.has(role, layer)) return;
    expect(bare.floats(role, layer) == expected.floats(role, layer), "values without prefix");
  });
  expect_refusal<ModelError>([&] { Weights(with_header(replaced(header, "F32", "I32")), spec); },
                             "is I32 [32]; expected F32, F16 or BF16", "whole numbers as weights");

  expect(expected.tensor(Role::decoder_weight).data == expected.tensor(Role::word_embeddings).data,
         "tied decoder");
  const Weights stored(models + "/sapiens-vh", read_model_spec(models + "/sapiens-vh"));
  expect(stored.tensor(Role::decoder_weight).data != stored.tensor(Role::word_embeddings).data,
         "stored decoder");
}

void check_index(const std::string& models, const TemporaryFolder& temporary) {
  constexpr const char* kIndex = "/model.safetensors.index.json";
  const Edit edits[] = {
      {"bert-sharded", "model-00001-of-00002.safetensors", "../x.safetensors",
       "expected a file beside the index, or ../FOLDER/FILE"},
      {"bert-sharded", "model-00001-of-00002.safetensors", "../../bert/model.safetensors",
       "expected a file beside the index, or ../FOLDER/FILE"},
      {"bert-sharded", "model-00001-of-00002.safetensors", "/model.safetensors",
       "expected a file beside the index, or ../FOLDER/FILE"},
      {"bert-sharded", "model-00001-of-00002.safetensors", "../gone/model.safetensors",
       "gone/model.safetensors: cannot be opened"},
      {"bert-sharded", "model-00001-of-00002.safetensors", "gone.safetensors",
       "gone.safetensors: cannot be opened"},
      {"bert-sharded", "\"bert.embeddings.LayerNorm.bias", "\"bert.extra",
       "tensor bert.extra is not in model-00001"},
      {"bert-sharded", "weight_map", "weights", "no weight_map"},
      {"bert-sharded", "{", "", "not valid JSON"},
  };
  for (const auto& [name, from, to, message] : edits) {
    const std::string folder = temporary.link_files_of(models + "/" + name);
    write_bytes(folder + kIndex, replaced(read_bytes(models + "/" + name + kIndex), from, to));
    expect_refusal<ModelError>([&] { Weights(folder, read_model_spec(folder)); }, message,
                               std::string("an index with ") + to);
  }
}

// Half floats where no float could stand.
void check_views() {
  const uint16_t halves[] = {0x3c00, 0xc000, 0x3800, 0x7c00};
  std::byte bytes[sizeof halves + 1];
  std::memcpy(bytes + 1, halves, sizeof halves);
  float values[2];
  WeightView{bytes + 1, DType::f16, 2, 2}.read(1, 2, values);
  expect(values[0] == -2.0f && values[1] == 0.5f, "float16 read from its second element");
  WeightView{bytes + 1, DType::bf16, 4, 1}.read(0, 2, values);
  expect(values[0] == 0.0078125f && values[1] == -2.0f, "bfloat16 read");
}

// Every float16 against its definition: sign, 5 bits of exponent, 10 of mantissa.
void check_float16() {
  std::vector<uint16_t> halves(1 << 16);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  std::vector<float> values(halves.size());
  WeightView{reinterpret_cast<const std::byte*>(halves.data()), DType::f16, 1 << 16, 1}.read(0, 1 << 16,
                                                                                          values.data());
  int num_wrong = 0;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) expected = mantissa == 0 ? HUGE_VAL : NAN;
    if (bits >> 15) expected = -expected;
    const double value = values[bits];
    num_wrong += std::isnan(expected) ? !std::isnan(value)
                                      : value != expected || std::signbit(value) != std::signbit(expected);
  }
  expect_equal(num_wrong, 0, "float16 values read wrong");
}

// A pipe where a file should be is refused and not waited for.
void check_pipe(const std::string& models, const TemporaryFolder& temporary) {
  const std::string folder = temporary.link_files_of(models + "/bert"), path = folder + "/config.json";
  std::filesystem::remove(path);
  expect(mkfifo(path.c_str(), 0600) == 0, "a pipe can be made");
  expect_refusal<ModelError>([&] { read_model_spec(folder); }, "not a regular file", "a pipe");
  std::filesystem::remove(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: model_test tests/data/models\n";
    return 2;
  }
  const std::string models = argv[1];
  const TemporaryFolder temporary;
  for (const Expected& expected : kGood) check_good_folder(models, expected);
  check_families(models);
  check_fused(models);
  check_layouts(models);
  check_refused_folders(models);
  check_edits(models, temporary);
  check_headers_of_models(models, temporary);
  check_index(models, temporary);
  check_views();
  check_float16();
  check_pipe(models, temporary);
  return report();
}
