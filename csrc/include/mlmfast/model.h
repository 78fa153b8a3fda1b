// A masked language model, or a student of one: its encoder and its head, ready to score batches of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mlmfast/encoder.h"
#include "mlmfast/head.h"
#include "mlmfast/isa.h"
#include "mlmfast/matrix.h"
#include "mlmfast/model_spec.h"

namespace mlmfast {

struct Places;

class Model {
 public:
  // Reads config.json and the safetensors weights of a folder.
  // Throws ModelError for a model that cannot be run or trusted, std::invalid_argument for a precision
  // this CPU has no kernels for.
  Model(const std::string& folder, Precision precision, Isa isa);

  // Results of the batch's targets, in order; log_prob of a student is the value at the target, whose id it
  // does not read. Throws std::invalid_argument for a batch that does not fit, and for one that asks a student
  // for more, masks its rows, or asks one of head cls at another place than 0.
  // One thread a call; several threads may call at once. A row's results are the same bits whatever rows
  // stand beside it.
  void score(const RowBatch& batch, const HeadOutputs& outputs) const;

  const ModelSpec& spec() const { return encoder_.spec(); }

 private:
  Model(const ModelSpec& spec, const std::string& folder, Precision precision, Isa isa);
  Model(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa);

  void score_values(const Places& places, const float* features, float* values) const;

  Encoder encoder_;
  std::optional<Head> head_;                 // a vocabulary's, or else
  std::vector<float> student_weight_;        // [H]
  float student_bias_ = 0;
};

}  // namespace mlmfast
