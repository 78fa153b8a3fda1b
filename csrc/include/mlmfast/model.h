// A masked language model: its encoder and its vocabulary head, ready to score batches of rows.
#pragma once

#include <cstdint>
#include <string>

#include "mlmfast/encoder.h"
#include "mlmfast/head.h"
#include "mlmfast/isa.h"
#include "mlmfast/matrix.h"
#include "mlmfast/model_spec.h"

namespace mlmfast {

class Model {
 public:
  // Reads config.json and the safetensors weights of a folder.
  // Throws ModelError for a model that cannot be run or trusted, std::invalid_argument for a precision
  // this CPU has no kernels for.
  Model(const std::string& folder, Precision precision, Isa isa);

  // Results of the batch's targets, in order. Throws std::invalid_argument for a batch that does not fit.
  // One thread a call; several threads may call at once. A row's results are the same bits whatever rows
  // stand beside it.
  void score(const RowBatch& batch, const HeadOutputs& outputs) const;

  const ModelSpec& spec() const { return encoder_.spec(); }

 private:
  Model(const ModelSpec& spec, const std::string& folder, Precision precision, Isa isa);
  Model(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa);

  Encoder encoder_;
  Head head_;
};

}  // namespace mlmfast
