// The token a model's tokenizer masks with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mlmfast/model_spec.h"

namespace mlmfast {

// Its id, by tokenizer.json or, for ESM without one, vocab.txt; nothing where the folder has neither.
// Throws ModelError for files that cannot be read, for a tokenizer without a mask token of its own, and for
// an id that the model's vocabulary does not have.
std::optional<int64_t> read_mask_token_id(const std::string& folder, const ModelSpec& spec);

}  // namespace mlmfast
