// What the tests of the C API share: models that free themselves, failures, the arrays of batches and results.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "check.h"
#include "mlmfast/c_api.h"

namespace mlmfast::testing {

struct FreeModel {
  void operator()(mlmfast_model* model) const { mlmfast_free(model); }
};
using ModelHandle = std::unique_ptr<mlmfast_model, FreeModel>;

// Null where the folder cannot be loaded.
inline ModelHandle load_model(const std::string& folder, const char* precision = "float32",
                              const char* isa = nullptr) {
  mlmfast_load_options options = MLMFAST_LOAD_OPTIONS_INIT;
  options.precision = precision;
  options.isa = isa;
  mlmfast_model* model = nullptr;
  return mlmfast_load(folder.c_str(), &options, &model) == MLMFAST_OK ? ModelHandle(model) : nullptr;
}

inline mlmfast_info info_of(const mlmfast_model* model) {
  mlmfast_info info = MLMFAST_INFO_INIT;
  return mlmfast_get_info(model, &info) == MLMFAST_OK ? info : mlmfast_info{};
}

// A failure with a status, and a message that says every part.
inline void expect_failure(mlmfast_status found, mlmfast_status expected, const std::vector<std::string>& parts,
                    const std::string& what) {
  const std::string message = mlmfast_last_error();
  check(found == expected, what + ": status " + std::to_string(found) + ", expected " +
                               std::to_string(expected) + " (" + message + ")");
  for (const std::string& part : parts) {
    check(message.find(part) != std::string::npos, what + ": the message " + message + " does not say " + part);
  }
}

// The arrays of a batch.
struct Rows {
  std::vector<int64_t> text_offsets = {0};
  std::vector<int32_t> input_ids, token_type_ids;  // types empty: NULL
  std::vector<int32_t> row_text;
  std::vector<int64_t> mask_offsets = {0};
  std::vector<int32_t> mask_positions;
  std::vector<int64_t> target_offsets = {0};
  std::vector<int32_t> target_positions, target_ids;

  void add_text(const std::vector<int32_t>& ids) {
    input_ids.insert(input_ids.end(), ids.begin(), ids.end());
    text_offsets.push_back(static_cast<int64_t>(input_ids.size()));
  }

  // A row of the last text with some of its tokens masked and asked for.
  void add_row(const std::vector<int32_t>& masks, const std::vector<int32_t>& targets) {
    row_text.push_back(static_cast<int32_t>(text_offsets.size()) - 2);
    const int64_t begin = text_offsets[text_offsets.size() - 2];
    mask_positions.insert(mask_positions.end(), masks.begin(), masks.end());
    mask_offsets.push_back(static_cast<int64_t>(mask_positions.size()));
    for (int32_t position : targets) {
      target_positions.push_back(position);
      target_ids.push_back(input_ids[begin + position]);
    }
    target_offsets.push_back(static_cast<int64_t>(target_positions.size()));
  }

  mlmfast_batch batch() const {
    mlmfast_batch batch = MLMFAST_BATCH_INIT;
    batch.num_texts = static_cast<int64_t>(text_offsets.size()) - 1;
    batch.num_tokens = static_cast<int64_t>(input_ids.size());
    batch.text_offsets = text_offsets.data();
    batch.input_ids = input_ids.data();
    batch.token_type_ids = token_type_ids.empty() ? nullptr : token_type_ids.data();
    batch.num_rows = static_cast<int64_t>(row_text.size());
    batch.row_text = row_text.data();
    batch.num_masks = static_cast<int64_t>(mask_positions.size());
    batch.mask_offsets = mask_offsets.data();
    batch.mask_positions = mask_positions.data();
    batch.num_targets = static_cast<int64_t>(target_positions.size());
    batch.target_offsets = target_offsets.data();
    batch.target_positions = target_positions.data();
    batch.target_ids = target_ids.data();
    return batch;
  }
};

// Every kind of result of num_targets targets.
struct Results {
  std::vector<float> log_prob, logit, entropy, top_log_probs;
  std::vector<int32_t> rank, top_ids;
  int64_t top_k;

  Results(int64_t num_targets, int64_t k)
      : log_prob(num_targets),
        logit(num_targets),
        entropy(num_targets),
        top_log_probs(num_targets * k),
        rank(num_targets),
        top_ids(num_targets * k),
        top_k(k) {}

  mlmfast_outputs outputs() {
    mlmfast_outputs outputs = MLMFAST_OUTPUTS_INIT;
    outputs.log_prob = log_prob.data();
    outputs.logit = logit.data();
    outputs.rank = rank.data();
    outputs.entropy = entropy.data();
    outputs.top_k = top_k;
    outputs.top_ids = top_ids.data();
    outputs.top_log_probs = top_log_probs.data();
    return outputs;
  }

  bool operator==(const Results&) const = default;
};

// A text of some length: ids of no meaning, all in the vocabulary.
inline std::vector<int32_t> text_of(int64_t length, int64_t vocab_size) {
  std::vector<int32_t> ids(length);
  for (int64_t i = 0; i < length; ++i) ids[i] = static_cast<int32_t>((5 + 7 * i) % vocab_size);
  return ids;
}

inline std::vector<int32_t> positions_of(int64_t length) {
  std::vector<int32_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

}  // namespace mlmfast::testing
