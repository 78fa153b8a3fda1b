// The C API: models loaded or refused, scores equal to Model's to the bit.
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "c_api_testing.h"
#include "check.h"
#include "mlmfast/model.h"
#include "model_testing.h"

using namespace mlmfast::testing;

namespace {

const char* const kModels[] = {"bert", "roberta", "distilbert", "albert", "electra", "xlm-roberta",
                               "camembert", "modernbert", "esm2", "sapiens-vh", "bert-sharded"};

// Of texts short and long: rows that mask a token and ask for it, one that masks nothing and asks for two, one
// that asks for nothing.
Rows some_rows(int64_t vocab_size, int64_t max_length) {
  Rows rows;
  for (int64_t length : {int64_t{1}, int64_t{7}, max_length}) {
    rows.add_text(text_of(length, vocab_size));
    for (int64_t p = 0; p < length; p += 1 + length / 8) {
      rows.add_row({static_cast<int32_t>(p)}, {static_cast<int32_t>(p)});
    }
    rows.add_row({}, {static_cast<int32_t>(length) - 1, 0});
    rows.add_row({0}, {});
  }
  return rows;
}

void test_scores_are_those_of_the_model(const std::string& folder, mlmfast::Precision precision,
                                        mlmfast::Isa isa) {
  const mlmfast::Model expected_model(folder, precision, isa);
  const ModelHandle model = load_model(folder, mlmfast::precision_name(precision), mlmfast::isa_name(isa));
  check(model != nullptr, folder + " loads: " + mlmfast_last_error());
  if (!model) return;
  const mlmfast_info info = info_of(model.get());
  check(info.max_length == expected_model.spec().max_length && info.vocab_size == expected_model.spec().vocab_size &&
            info.hidden_size == expected_model.spec().hidden_size &&
            std::string(info.precision) == mlmfast::precision_name(precision) &&
            std::string(info.isa) == mlmfast::isa_name(isa),
        folder + " info");

  const Rows rows = some_rows(info.vocab_size, info.max_length);
  const mlmfast_batch batch = rows.batch();
  Results found(batch.num_targets, 3), expected(batch.num_targets, 3);
  const mlmfast_outputs outputs = found.outputs();
  check(mlmfast_score_batch(model.get(), &batch, &outputs) == MLMFAST_OK, mlmfast_last_error());
  expected_model.score({rows.input_ids.data(), rows.text_offsets.data(), nullptr, batch.num_texts,
                        rows.row_text.data(), batch.num_rows, rows.mask_positions.data(), rows.mask_offsets.data(),
                        rows.target_positions.data(), rows.target_ids.data(), rows.target_offsets.data(),
                        static_cast<int32_t>(info.mask_token_id)},
                       {.log_prob = expected.log_prob.data(),
                        .logit = expected.logit.data(),
                        .rank = expected.rank.data(),
                        .entropy = expected.entropy.data(),
                        .top_k = 3,
                        .top_ids = expected.top_ids.data(),
                        .top_log_probs = expected.top_log_probs.data()});
  check(found == expected && std::isfinite(found.log_prob[0]), folder + " scores of a batch");

  const std::vector<int32_t> ids = text_of(7, info.vocab_size);
  std::vector<float> all(7), some(3);
  check(mlmfast_score_text(model.get(), ids.data(), 7, nullptr, 7, all.data()) == MLMFAST_OK, mlmfast_last_error());
  Rows original;
  original.add_text(ids);
  for (int32_t p = 0; p < 7; ++p) original.add_row({p}, {p});
  const mlmfast_batch one_text = original.batch();
  mlmfast_outputs log_probs = MLMFAST_OUTPUTS_INIT;
  std::vector<float> by_rows(7);
  log_probs.log_prob = by_rows.data();
  check(mlmfast_score_batch(model.get(), &one_text, &log_probs) == MLMFAST_OK, mlmfast_last_error());
  check(all == by_rows, folder + " a text's scores are those of its rows");
  const int32_t positions[] = {6, 2, 6};
  check(mlmfast_score_text(model.get(), ids.data(), 7, positions, 3, some.data()) == MLMFAST_OK,
        mlmfast_last_error());
  check(some == std::vector{all[6], all[2], all[6]}, folder + " positions in any order");
}

// A model of longer texts than the tiny ones take: rotary positions need no table in the checkpoint.
void test_long_texts(const std::string& models) {
  const mlmfast::TemporaryFolder temporary;
  const std::string folder = temporary.link_files_of(models + "/modernbert");
  const std::string stated = "\"max_position_embeddings\": ";
  std::string config = mlmfast::read_bytes(folder + "/config.json");
  config.replace(config.find(stated) + stated.size(), 2, "512");
  mlmfast::write_bytes(folder + "/config.json", config);
  mlmfast::write_bytes(folder + "/tokenizer_config.json", "{}");
  test_scores_are_those_of_the_model(folder, mlmfast::Precision::float32, mlmfast::available_isas().back());
  const ModelHandle model = load_model(folder);
  if (!model) return check(false, mlmfast_last_error());
  const std::vector<int32_t> ids = text_of(513, info_of(model.get()).vocab_size);
  const int32_t positions[] = {0, 255, 511};
  float log_probs[3];
  check(mlmfast_score_text(model.get(), ids.data(), 512, positions, 3, log_probs) == MLMFAST_OK &&
            std::isfinite(log_probs[2]),
        "512 tokens");
  expect_failure(mlmfast_score_text(model.get(), ids.data(), 513, positions, 3, log_probs),
                 MLMFAST_INVALID_ARGUMENT, {"513 tokens", "1 to 512"}, "513 tokens");
}

void test_loading(const std::string& models) {
  mlmfast_model* model = nullptr;
  const auto load = [&](const std::string& name, mlmfast_load_options options) {
    // What stood there before must not be taken for a model.
    model = reinterpret_cast<mlmfast_model*>(&model);
    return mlmfast_load((models + "/" + name).c_str(), &options, &model);
  };
  const auto expect = [&](mlmfast_status found, mlmfast_status status, const std::vector<std::string>& parts,
                          const std::string& what) {
    expect_failure(found, status, parts, what);
    check(model == nullptr, what + " leaves NULL");
  };
  const mlmfast_load_options defaults = MLMFAST_LOAD_OPTIONS_INIT;
  expect(load("none-here", defaults), MLMFAST_MODEL_ERROR, {"mlmfast_load: ", "none-here", "config.json"},
         "no folder");
  expect(load(std::string(5000, 'x'), defaults), MLMFAST_MODEL_ERROR, {"mlmfast_load: "}, "a name too long");
  expect(load("gpt2", defaults), MLMFAST_UNSUPPORTED, {"config.json: model_type", "gpt2"}, "another architecture");
  expect(load("bert-no-head", defaults), MLMFAST_MODEL_ERROR, {"cls.predictions"}, "no head");
  expect(load("bert-no-weights", defaults), MLMFAST_MODEL_ERROR, {"model.safetensors"}, "no weights");
  expect(load("bert-mask-is-unk", defaults), MLMFAST_MODEL_ERROR, {"unknown token"}, "mask is unknown");
  expect(load("bert-no-mask-token", defaults), MLMFAST_MODEL_ERROR, {"no mask token"}, "no mask token");

  mlmfast_load_options options = defaults;
  options.precision = "float16";
  expect(load("bert", options), MLMFAST_INVALID_ARGUMENT, {"float16", "bf16x3"}, "unknown precision");
  options = defaults;
  options.isa = "sse9";
  expect(load("bert", options), MLMFAST_INVALID_ARGUMENT, {"sse9", "generic"}, "unknown instruction set");
  for (int64_t id : {int64_t{-2}, int64_t{320}, INT64_MAX, INT64_MIN}) {
    options = defaults;
    options.mask_token_id = id;
    expect(load("bert", options), MLMFAST_INVALID_ARGUMENT, {"mask_token_id", "319"}, "mask token out of range");
  }
  options = defaults;
  options.mask_token_id = 7;
  check(load("bert-no-mask-token", options) == MLMFAST_OK, "a mask token given");
  check(info_of(model).mask_token_id == 7, "the mask token given");
  mlmfast_free(model);

  check(mlmfast_load((models + "/bert").c_str(), nullptr, &model) == MLMFAST_OK, "default options");
  check(std::string(info_of(model).precision) == "float32", "default precision");
  mlmfast_free(model);
  expect_failure(mlmfast_load(nullptr, &defaults, &model), MLMFAST_INVALID_ARGUMENT, {"folder", "NULL"}, "no path");
  expect_failure(mlmfast_load("x", &defaults, nullptr), MLMFAST_INVALID_ARGUMENT, {"model", "NULL"}, "no result");
  mlmfast_free(nullptr);
}

// The mask token of tokenizers in every form it is published.
void test_mask_tokens(const std::string& models) {
  for (const auto& [name, id] : {std::pair{"bert", 4}, {"roberta", 419}, {"sapiens-vh", 24}, {"modernbert", 399},
                                 {"esm2", 32}}) {
    const ModelHandle model = load_model(models + "/" + name);
    check(model != nullptr && info_of(model.get()).mask_token_id == id, std::string(name) + " mask token");
  }
  const mlmfast::TemporaryFolder temporary;
  const std::string folder = temporary.link_files_of(models + "/bert"), tokenizer = folder + "/tokenizer.json";
  const std::string roles = folder + "/tokenizer_config.json";
  const auto mask_of = [&] {
    const ModelHandle model = load_model(folder);
    return model == nullptr ? std::string(mlmfast_last_error()) : std::to_string(info_of(model.get()).mask_token_id);
  };
  const auto says = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  mlmfast::write_bytes(tokenizer, R"({"model": {"vocab": {"[MASK]": 9}}})");
  check(mask_of() == "9", "from the vocabulary: " + mask_of());
  mlmfast::write_bytes(roles, R"({"mask_token": {"content": "<m>"}})");
  check(says(mask_of(), "no mask token"), "stated, but not there: " + mask_of());
  mlmfast::write_bytes(tokenizer, R"({"added_tokens": [5, {"content": "<m>", "id": 11}]})");
  check(mask_of() == "11", "an object's content: " + mask_of());
  mlmfast::write_bytes(roles, "{}");
  mlmfast::write_bytes(tokenizer, R"({"added_tokens": [{"content": "<mask>", "id": 12}]})");
  check(mask_of() == "12", "the customary spelling: " + mask_of());
  mlmfast::write_bytes(tokenizer, R"({"added_tokens": [{"content": "<mask>", "id": 320}]})");
  check(says(mask_of(), "vocab_size"), "beyond the vocabulary: " + mask_of());
  mlmfast::write_bytes(tokenizer, "{");
  check(says(mask_of(), "tokenizer.json: not valid JSON"), "not JSON: " + mask_of());

  std::filesystem::remove(tokenizer);
  const ModelHandle model = load_model(folder);
  check(model != nullptr && info_of(model.get()).mask_token_id == -1, "no tokenizer");
  if (!model) return;
  const int32_t ids[] = {2, 7, 3};
  float log_probs[3];
  expect_failure(mlmfast_score_text(model.get(), ids, 3, nullptr, 3, log_probs), MLMFAST_INVALID_ARGUMENT,
                 {"mask token", "mask_token_id"}, "no tokenizer, no mask token");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string models = argv[1];
  check(mlmfast_last_error()[0] == '\0', "no error before any");
  check(mlmfast_api_version() == MLMFAST_API_VERSION && mlmfast_version()[0] != '\0', "versions");
  for (const char* name : kModels) {
    for (mlmfast::Precision precision : mlmfast::kPrecisions) {
      test_scores_are_those_of_the_model(models + "/" + name, precision, mlmfast::available_isas().back());
    }
    test_scores_are_those_of_the_model(models + "/" + name, mlmfast::Precision::float32, mlmfast::Isa::generic);
  }
  test_long_texts(models);
  test_loading(models);
  test_mask_tokens(models);
  return report("c_api_test");
}
