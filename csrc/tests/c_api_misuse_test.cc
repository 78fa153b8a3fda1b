// Misuse of the C API: refused with a status, and a message that says where, what was expected, what came.
#include <functional>
#include <string>
#include <vector>

#include "c_api_testing.h"
#include "check.h"

using namespace mlmfast::testing;

namespace {

void test_texts(const mlmfast_model* model) {
  const int32_t ids[] = {2, 7, 3};
  float log_probs[3];
  const auto expect = [&](mlmfast_status status, const std::vector<std::string>& parts, const std::string& what) {
    expect_failure(status, MLMFAST_INVALID_ARGUMENT, parts, what);
  };
  expect(mlmfast_score_text(nullptr, ids, 3, nullptr, 3, log_probs), {"mlmfast_score_text: model", "NULL"},
         "no model");
  expect(mlmfast_score_text(model, nullptr, 3, nullptr, 3, log_probs), {"input_ids", "NULL"}, "no ids");
  expect(mlmfast_score_text(model, ids, 3, nullptr, 3, nullptr), {"log_probs", "NULL"}, "no results");
  expect(mlmfast_score_text(model, ids, 3, nullptr, 2, log_probs), {"num_positions", "3", "2"}, "too few results");
  expect(mlmfast_score_text(model, ids, 0, nullptr, 0, log_probs), {"0 tokens", "1 to 64"}, "an empty text");
  expect(mlmfast_score_text(model, ids, -1, nullptr, -1, log_probs), {"num_tokens", "-1"}, "a negative length");
  expect(mlmfast_score_text(model, ids, INT64_MAX, nullptr, INT64_MAX, log_probs), {"num_tokens"}, "a huge length");
  const std::vector<int32_t> too_long = text_of(65, 320);
  std::vector<float> many(65);
  expect(mlmfast_score_text(model, too_long.data(), 65, nullptr, 65, many.data()), {"65 tokens", "1 to 64"},
         "too long");
  for (int32_t id : {-1, 320, INT32_MAX, INT32_MIN}) {
    const int32_t wrong[] = {2, id, 3};
    expect(mlmfast_score_text(model, wrong, 3, nullptr, 3, log_probs),
           {"input_ids[1] is " + std::to_string(id), "0 to 319"}, "an id out of range");
  }
  for (int32_t position : {-1, 3, INT32_MAX}) {
    expect(mlmfast_score_text(model, ids, 3, &position, 1, log_probs),
           {"positions[0] is " + std::to_string(position), "0 to 2"}, "a position out of range");
  }
  check(mlmfast_score_text(model, ids, 3, ids, 0, nullptr) == MLMFAST_OK, "no positions");
}

void test_batches(const mlmfast_model* model) {
  Rows rows;
  rows.add_text({2, 7, 9, 3});
  rows.add_row({1}, {1});
  rows.add_text({2, 3});
  rows.add_row({0}, {1, 0});
  rows.token_type_ids.assign(6, 0);
  // One field changed, and what the message must say.
  const auto expect = [&](const std::function<void(mlmfast_batch&, mlmfast_outputs&)>& change,
                          const std::vector<std::string>& parts) {
    mlmfast_batch batch = rows.batch();
    Results results(3, 2);
    mlmfast_outputs outputs = results.outputs();
    change(batch, outputs);
    expect_failure(mlmfast_score_batch(model, &batch, &outputs), MLMFAST_INVALID_ARGUMENT, parts, parts[0]);
  };
  using Batch = mlmfast_batch;
  using Outputs = mlmfast_outputs;
  expect([](Batch& b, Outputs&) { b.text_offsets = nullptr; }, {"batch->text_offsets", "NULL"});
  expect([](Batch& b, Outputs&) { b.input_ids = nullptr; }, {"batch->input_ids", "NULL"});
  expect([](Batch& b, Outputs&) { b.row_text = nullptr; }, {"batch->row_text", "NULL"});
  expect([](Batch& b, Outputs&) { b.mask_offsets = nullptr; }, {"batch->mask_offsets", "NULL"});
  expect([](Batch& b, Outputs&) { b.mask_positions = nullptr; }, {"batch->mask_positions", "NULL"});
  expect([](Batch& b, Outputs&) { b.target_offsets = nullptr; }, {"batch->target_offsets", "NULL"});
  expect([](Batch& b, Outputs&) { b.target_positions = nullptr; }, {"batch->target_positions", "NULL"});
  expect([](Batch& b, Outputs&) { b.target_ids = nullptr; }, {"batch->target_ids", "NULL"});
  expect([](Batch&, Outputs& o) { o.log_prob = nullptr; }, {"outputs->log_prob", "NULL"});
  expect([](Batch&, Outputs& o) { o.top_ids = nullptr; }, {"outputs->top_ids", "NULL"});
  expect([](Batch&, Outputs& o) { o.top_log_probs = nullptr; }, {"outputs->top_log_probs", "NULL"});
  for (int64_t k : {int64_t{-1}, int64_t{321}, INT64_MAX}) {
    expect([k](Batch&, Outputs& o) { o.top_k = k; }, {"top_k", "0 and 320", std::to_string(k)});
  }
  for (int64_t count : {int64_t{-1}, int64_t{1} << 31, INT64_MAX}) {
    expect([&](Batch& b, Outputs&) { b.num_texts = count; }, {"batch->num_texts is " + std::to_string(count)});
    expect([&](Batch& b, Outputs&) { b.num_tokens = count; }, {"batch->num_tokens is " + std::to_string(count)});
    expect([&](Batch& b, Outputs&) { b.num_rows = count; }, {"batch->num_rows is " + std::to_string(count)});
    expect([&](Batch& b, Outputs&) { b.num_masks = count; }, {"batch->num_masks is " + std::to_string(count)});
    expect([&](Batch& b, Outputs&) { b.num_targets = count; }, {"batch->num_targets is " + std::to_string(count)});
  }
  expect([](Batch& b, Outputs&) { b.num_tokens = 5; }, {"text_offsets must end", "5, got 6"});
  expect([](Batch& b, Outputs&) { b.num_masks = 1; }, {"mask_offsets must end", "1, got 2"});
  expect([](Batch& b, Outputs&) { b.num_targets = 2; }, {"target_offsets must end", "2, got 3"});
  for (int64_t id : {int64_t{-2}, int64_t{320}, (int64_t{1} << 32) + 4}) {
    expect([id](Batch& b, Outputs&) { b.mask_token_id = id; }, {"mask_token_id is " + std::to_string(id)});
  }
  const int64_t late[] = {1, 4, 6}, falling[] = {0, 7, 6}, empty[] = {0, 0, 6}, overflowing[] = {0, INT64_MIN, 6};
  for (const int64_t* offsets : {late, falling, overflowing}) {
    expect([&](Batch& b, Outputs&) { b.text_offsets = offsets; }, {"text_offsets must start at 0 and never fall"});
  }
  expect([&](Batch& b, Outputs&) { b.text_offsets = empty; }, {"text 0 has 0 tokens"});
  const int32_t texts[] = {0, 2}, masks[] = {4, 0}, targets[] = {1, -1, 0}, ids[] = {7, 3, 320};
  const int32_t types[] = {0, 0, 0, 0, 0, 2};
  expect([&](Batch& b, Outputs&) { b.row_text = texts; }, {"row_text[1] is 2, expected 0 to 1"});
  expect([&](Batch& b, Outputs&) { b.mask_positions = masks; }, {"mask_positions[0] is 4, expected 0 to 3"});
  expect([&](Batch& b, Outputs&) { b.target_positions = targets; }, {"target_positions[0] is -1, expected 0 to 1"});
  expect([&](Batch& b, Outputs&) { b.target_ids = ids; }, {"target_ids[2] is 320"});
  expect([&](Batch& b, Outputs&) { b.token_type_ids = types; }, {"token_type_ids[5] is 2"});

  const Rows nothing;
  const mlmfast_batch none = nothing.batch();
  const mlmfast_outputs nowhere = MLMFAST_OUTPUTS_INIT;
  check(mlmfast_score_batch(model, &none, &nowhere) == MLMFAST_OK, "an empty batch");
  Rows no_targets;
  no_targets.add_text({2, 3});
  no_targets.add_row({1}, {});
  const mlmfast_batch unasked = no_targets.batch();
  check(mlmfast_score_batch(model, &unasked, &nowhere) == MLMFAST_OK, "no targets");
  expect_failure(mlmfast_score_batch(nullptr, &none, &nowhere), MLMFAST_INVALID_ARGUMENT, {"model"}, "no model");
  expect_failure(mlmfast_score_batch(model, nullptr, &nowhere), MLMFAST_INVALID_ARGUMENT, {"batch"}, "no batch");
  expect_failure(mlmfast_score_batch(model, &none, nullptr), MLMFAST_INVALID_ARGUMENT, {"outputs"}, "no outputs");
}

// A struct of a later version: this one's, and fields after it.
template <class Struct>
struct Later {
  Struct known;
  int64_t added = 0;
};

void test_struct_sizes(const std::string& folder) {
  mlmfast_model* model = nullptr;
  Later<mlmfast_load_options> options{MLMFAST_LOAD_OPTIONS_INIT};
  options.known.struct_size = sizeof options;
  check(mlmfast_load(folder.c_str(), &options.known, &model) == MLMFAST_OK, mlmfast_last_error());
  const ModelHandle handle(model);
  options.added = 1;
  expect_failure(mlmfast_load(folder.c_str(), &options.known, &model), MLMFAST_INVALID_ARGUMENT,
                 {"options has fields set", std::to_string(sizeof options)}, "an unknown field set");
  for (size_t size : {size_t{0}, sizeof(mlmfast_load_options) - 1, size_t{4097}, SIZE_MAX}) {
    options.known.struct_size = size;
    expect_failure(mlmfast_load(folder.c_str(), &options.known, &model), MLMFAST_INVALID_ARGUMENT,
                   {"options->struct_size is " + std::to_string(size), std::to_string(sizeof(mlmfast_load_options))},
                   "a size that is none");
  }

  Later<mlmfast_info> info{MLMFAST_INFO_INIT};
  info.known.struct_size = sizeof info;
  check(mlmfast_get_info(handle.get(), &info.known) == MLMFAST_OK, mlmfast_last_error());
  check(info.known.vocab_size == 320 && info.added == 0 && info.known.struct_size == sizeof info, "a larger info");
  info.known.struct_size = 8;
  expect_failure(mlmfast_get_info(handle.get(), &info.known), MLMFAST_INVALID_ARGUMENT, {"info->struct_size is 8"},
                 "a small info");
  expect_failure(mlmfast_get_info(handle.get(), nullptr), MLMFAST_INVALID_ARGUMENT, {"info", "NULL"}, "no info");
  expect_failure(mlmfast_get_info(nullptr, &info.known), MLMFAST_INVALID_ARGUMENT, {"model", "NULL"}, "no model");

  const Rows rows;
  Later<mlmfast_batch> batch{rows.batch()};
  Later<mlmfast_outputs> outputs{MLMFAST_OUTPUTS_INIT};
  batch.known.struct_size = sizeof batch;
  outputs.known.struct_size = sizeof outputs;
  const auto score = [&] { return mlmfast_score_batch(handle.get(), &batch.known, &outputs.known); };
  check(score() == MLMFAST_OK, mlmfast_last_error());
  outputs.added = -1;
  expect_failure(score(), MLMFAST_INVALID_ARGUMENT, {"outputs has fields set"}, "an unknown output");
  batch.known.struct_size = 0;
  expect_failure(score(), MLMFAST_INVALID_ARGUMENT, {"batch->struct_size is 0"}, "a batch without size");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/bert";
  test_struct_sizes(folder);
  const ModelHandle model = load_model(folder);
  test_texts(model.get());
  test_batches(model.get());
  return report("c_api_misuse_test");
}
