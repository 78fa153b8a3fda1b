#include "mlmfast/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "batch_checks.h"
#include "mask_token.h"
#include "mlmfast/model.h"

struct mlmfast_model {
  mlmfast::Model model;
  mlmfast::Precision precision;
  mlmfast::Isa isa;
  int64_t mask_token_id;  // -1: unknown
};

namespace {

// Every message fits but those with very long paths. No memory is allocated where memory has run out.
thread_local char last_error[4096];

mlmfast_status fail(mlmfast_status status, const char* function, const char* what) {
  std::snprintf(last_error, sizeof last_error, "%s: %s", function, what);
  return status;
}

// Nothing thrown by the call gets past.
template <class Call>
mlmfast_status guard(const char* function, Call&& call) noexcept {
  try {
    call();
    return MLMFAST_OK;
  } catch (const mlmfast::UnsupportedModelError& error) {
    return fail(MLMFAST_UNSUPPORTED, function, error.what());
  } catch (const mlmfast::ModelError& error) {
    return fail(MLMFAST_MODEL_ERROR, function, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(MLMFAST_MODEL_ERROR, function, error.what());
  } catch (const std::invalid_argument& error) {
    return fail(MLMFAST_INVALID_ARGUMENT, function, error.what());
  } catch (const std::bad_alloc&) {
    return fail(MLMFAST_OUT_OF_MEMORY, function, "out of memory");
  } catch (const std::exception& error) {
    return fail(MLMFAST_INTERNAL, function, error.what());
  } catch (...) {
    return fail(MLMFAST_INTERNAL, function, "an unknown exception");
  }
}

[[noreturn]] void reject(const std::string& what) { throw std::invalid_argument(what); }

// Of an array, or, without a count, of one object.
void expect_pointer(const void* pointer, const char* name, int64_t count = 1) {
  if (pointer == nullptr && count > 0) reject(std::string(name) + " must not be NULL");
}

void expect_count(int64_t count, const char* name) {
  constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;
  if (count < 0 || count > kMaxCount) {
    reject(std::string(name) + " is " + std::to_string(count) + ", expected 0 to " + std::to_string(kMaxCount));
  }
}

#define MLMFAST_END_OF(type, field) (offsetof(type, field) + sizeof(type::field))

// The size of each struct's first version. None may end in padding: a field that a later version puts there
// would not show in struct_size.
template <class Struct>
constexpr size_t kFirstSize = 0;
template <>
constexpr size_t kFirstSize<mlmfast_load_options> = MLMFAST_END_OF(mlmfast_load_options, mask_token_id);
template <>
constexpr size_t kFirstSize<mlmfast_info> = MLMFAST_END_OF(mlmfast_info, isa);
template <>
constexpr size_t kFirstSize<mlmfast_batch> = MLMFAST_END_OF(mlmfast_batch, mask_token_id);
template <>
constexpr size_t kFirstSize<mlmfast_outputs> = MLMFAST_END_OF(mlmfast_outputs, top_log_probs);
static_assert(kFirstSize<mlmfast_load_options> == sizeof(mlmfast_load_options) &&
              kFirstSize<mlmfast_info> == sizeof(mlmfast_info) &&
              kFirstSize<mlmfast_batch> == sizeof(mlmfast_batch) &&
              kFirstSize<mlmfast_outputs> == sizeof(mlmfast_outputs));

// The caller's struct as this version knows it, fields that it does not reach 0.
template <class Struct>
Struct known_part(const Struct* given, const char* name) {
  constexpr size_t kMaxSize = 4096;  // no version is that large: the number is not a size
  expect_pointer(given, name);
  const size_t size = given->struct_size;
  if (size < kFirstSize<Struct> || size > kMaxSize) {
    reject(std::string(name) + "->struct_size is " + std::to_string(size) + ", expected " +
           std::to_string(sizeof(Struct)) + "; start from the struct's INIT macro");
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  if (size > sizeof(Struct) &&
      std::any_of(bytes + sizeof(Struct), bytes + size, [](char byte) { return byte != 0; })) {
    reject(std::string(name) + " has fields set that version " + std::to_string(MLMFAST_API_VERSION) +
           " of this API does not know (its struct_size is " + std::to_string(size) + ", known are " +
           std::to_string(sizeof(Struct)) + " bytes)");
  }
  Struct known{};
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  return known;
}

// The id a batch masks with; -1 stands for the model's. Any where there are no masks.
int32_t resolve_mask_token(int64_t given, const mlmfast_model& model, int64_t num_masks) {
  if (num_masks == 0) return 0;
  const int64_t id = given == -1 ? model.mask_token_id : given;
  if (id == -1) {
    reject("the model's mask token is not known: its folder has no tokenizer.json; give mask_token_id in "
           "mlmfast_load_options");
  }
  const int64_t limit = model.model.spec().vocab_size;
  if (id < 0 || id >= limit) {
    reject("mask_token_id is " + std::to_string(id) + ", expected -1 or 0 to " + std::to_string(limit - 1));
  }
  return static_cast<int32_t>(id);
}

mlmfast_model* load(const char* folder, const mlmfast_load_options& options) {
  const mlmfast::Precision precision =
      mlmfast::precision_from_name(options.precision == nullptr ? "float32" : options.precision);
  const mlmfast::Isa isa =
      options.isa == nullptr ? mlmfast::default_isa() : mlmfast::isa_from_name(options.isa);
  mlmfast::Model model(folder, precision, isa);
  const mlmfast::ModelSpec& spec = model.spec();
  int64_t mask = options.mask_token_id;
  if (mask < -1 || mask >= spec.vocab_size) {
    reject("options->mask_token_id is " + std::to_string(mask) + ", expected -1 or 0 to " +
           std::to_string(spec.vocab_size - 1));
  }
  if (mask == -1 && !spec.is_student()) mask = mlmfast::read_mask_token_id(folder, spec).value_or(-1);
  return new mlmfast_model{std::move(model), precision, isa, mask};
}

// Of a student: one unmasked row.
void score_unmasked(const mlmfast_model& model, const int32_t* input_ids, int64_t num_tokens,
                    const std::vector<int32_t>& targets, const std::vector<int32_t>& target_ids, float* values) {
  const int64_t num_rows = targets.empty() ? 0 : 1, num_targets = static_cast<int64_t>(targets.size());
  const int32_t row_text[] = {0};
  const int64_t text_offsets[] = {0, num_tokens}, mask_offsets[] = {0, 0}, target_offsets[] = {0, num_targets};
  model.model.score({input_ids, text_offsets, nullptr, 1, row_text, num_rows, nullptr, mask_offsets, targets.data(),
                     target_ids.data(), target_offsets, 0},
                    {.log_prob = values});
}

// One row a target: the text with only the target's token masked.
void score_text(const mlmfast_model& model, const int32_t* input_ids, int64_t num_tokens, const int32_t* positions,
                int64_t num_targets, float* log_probs) {
  std::vector<int32_t> targets(num_targets), target_ids(num_targets);
  for (int64_t i = 0; i < num_targets; ++i) {
    targets[i] = positions == nullptr ? static_cast<int32_t>(i) : positions[i];
    if (targets[i] < 0 || targets[i] >= num_tokens) {
      reject("positions[" + std::to_string(i) + "] is " + std::to_string(targets[i]) + ", expected 0 to " +
             std::to_string(num_tokens - 1));
    }
    target_ids[i] = input_ids[targets[i]];
  }
  if (model.model.spec().is_student()) {
    return score_unmasked(model, input_ids, num_tokens, targets, target_ids, log_probs);
  }
  std::vector<int64_t> one_each(num_targets + 1);
  std::iota(one_each.begin(), one_each.end(), int64_t{0});
  const std::vector<int32_t> row_text(num_targets, 0);
  const int64_t text_offsets[] = {0, num_tokens};
  const int32_t mask = resolve_mask_token(-1, model, num_targets);
  model.model.score({input_ids, text_offsets, nullptr, 1, row_text.data(), num_targets, targets.data(),
                     one_each.data(), targets.data(), target_ids.data(), one_each.data(), mask},
                    {.log_prob = log_probs});
}

void check_arrays(const mlmfast_batch& batch) {
  expect_count(batch.num_texts, "batch->num_texts");
  expect_count(batch.num_tokens, "batch->num_tokens");
  expect_count(batch.num_rows, "batch->num_rows");
  expect_count(batch.num_masks, "batch->num_masks");
  expect_count(batch.num_targets, "batch->num_targets");
  expect_pointer(batch.text_offsets, "batch->text_offsets");
  expect_pointer(batch.input_ids, "batch->input_ids", batch.num_tokens);
  expect_pointer(batch.row_text, "batch->row_text", batch.num_rows);
  expect_pointer(batch.mask_offsets, "batch->mask_offsets");
  expect_pointer(batch.mask_positions, "batch->mask_positions", batch.num_masks);
  expect_pointer(batch.target_offsets, "batch->target_offsets");
  expect_pointer(batch.target_positions, "batch->target_positions", batch.num_targets);
  expect_pointer(batch.target_ids, "batch->target_ids", batch.num_targets);
}

void score_batch(const mlmfast_model& model, const mlmfast_batch& batch, const mlmfast_outputs& outputs) {
  check_arrays(batch);
  expect_pointer(outputs.log_prob, "outputs->log_prob", batch.num_targets);
  mlmfast::check_top_k(outputs.top_k, model.model.spec().vocab_size);
  if (outputs.top_k > 0) {
    expect_pointer(outputs.top_ids, "outputs->top_ids", batch.num_targets);
    expect_pointer(outputs.top_log_probs, "outputs->top_log_probs", batch.num_targets);
  }
  const mlmfast::RowBatch rows{
      batch.input_ids,     batch.text_offsets, batch.token_type_ids,   batch.num_texts,
      batch.row_text,      batch.num_rows,     batch.mask_positions,   batch.mask_offsets,
      batch.target_positions, batch.target_ids, batch.target_offsets,
      resolve_mask_token(batch.mask_token_id, model, batch.num_masks)};
  mlmfast::check_batch_lengths(rows, {batch.num_tokens, batch.num_masks, batch.num_targets});
  model.model.score(rows, {.log_prob = outputs.log_prob,
                           .logit = outputs.logit,
                           .rank = outputs.rank,
                           .entropy = outputs.entropy,
                           .top_k = outputs.top_k,
                           .top_ids = outputs.top_ids,
                           .top_log_probs = outputs.top_log_probs});
}

}  // namespace

int32_t mlmfast_api_version() { return MLMFAST_API_VERSION; }

const char* mlmfast_version() { return MLMFAST_VERSION; }

const char* mlmfast_last_error() { return last_error; }

mlmfast_status mlmfast_load(const char* folder, const mlmfast_load_options* options, mlmfast_model** model) {
  return guard("mlmfast_load", [&] {
    expect_pointer(model, "model");
    *model = nullptr;
    expect_pointer(folder, "folder");
    const mlmfast_load_options defaults = MLMFAST_LOAD_OPTIONS_INIT;
    *model = load(folder, options == nullptr ? defaults : known_part(options, "options"));
  });
}

void mlmfast_free(mlmfast_model* model) { delete model; }

mlmfast_status mlmfast_get_info(const mlmfast_model* model, mlmfast_info* info) {
  return guard("mlmfast_get_info", [&] {
    expect_pointer(model, "model");
    const size_t size = known_part(info, "info").struct_size;
    const mlmfast::ModelSpec& spec = model->model.spec();
    const mlmfast_info known{size,
                             spec.max_length,
                             spec.vocab_size,
                             spec.hidden_size,
                             model->mask_token_id,
                             mlmfast::precision_name(model->precision),
                             mlmfast::isa_name(model->isa)};
    std::memcpy(info, &known, std::min(size, sizeof known));
  });
}

mlmfast_status mlmfast_score_text(const mlmfast_model* model, const int32_t* input_ids, int64_t num_tokens,
                                  const int32_t* positions, int64_t num_positions, float* log_probs) {
  return guard("mlmfast_score_text", [&] {
    expect_pointer(model, "model");
    expect_pointer(input_ids, "input_ids");
    expect_count(num_tokens, "num_tokens");
    expect_count(num_positions, "num_positions");
    expect_pointer(log_probs, "log_probs", num_positions);
    if (positions == nullptr && num_positions != num_tokens) {
      reject("positions is NULL, which stands for all " + std::to_string(num_tokens) +
             " tokens, but num_positions is " + std::to_string(num_positions));
    }
    score_text(*model, input_ids, num_tokens, positions, num_positions, log_probs);
  });
}

mlmfast_status mlmfast_score_batch(const mlmfast_model* model, const mlmfast_batch* batch,
                                   const mlmfast_outputs* outputs) {
  return guard("mlmfast_score_batch", [&] {
    expect_pointer(model, "model");
    const mlmfast_batch rows = known_part(batch, "batch");
    score_batch(*model, rows, known_part(outputs, "outputs"));
  });
}
