#include "mlmfast/model.h"

#include <algorithm>
#include <vector>

#include "batch_checks.h"
#include "mlmfast/aligned_buffer.h"

namespace mlmfast {
namespace {

// The batch's targets grouped by place, so that each hidden state is computed and read once.
struct Places {
  std::vector<int64_t> row_offsets;      // [num_rows + 1] into the places
  std::vector<int32_t> positions;        // [num_places]
  std::vector<int64_t> target_offsets;   // [num_places + 1] into order
  std::vector<int64_t> order;            // [num_targets] of the batch
  std::vector<int32_t> ids;              // [num_targets] in that order
  std::vector<int64_t> row_order;        // one row's targets, by position

  void group(const RowBatch& batch) {
    row_offsets.assign(1, 0);
    positions.clear();
    target_offsets.clear();
    order.clear();
    ids.clear();
    for (int64_t r = 0; r < batch.num_rows; ++r) {
      row_order.clear();
      for (int64_t t = batch.target_offsets[r]; t < batch.target_offsets[r + 1]; ++t) row_order.push_back(t);
      std::stable_sort(row_order.begin(), row_order.end(), [&](int64_t a, int64_t b) {
        return batch.target_positions[a] < batch.target_positions[b];
      });
      for (size_t i = 0; i < row_order.size(); ++i) {
        const int32_t position = batch.target_positions[row_order[i]];
        if (i == 0 || position != positions.back()) {
          positions.push_back(position);
          target_offsets.push_back(static_cast<int64_t>(order.size()));
        }
        order.push_back(row_order[i]);
        ids.push_back(batch.target_ids[row_order[i]]);
      }
      row_offsets.push_back(static_cast<int64_t>(positions.size()));
    }
    target_offsets.push_back(static_cast<int64_t>(order.size()));
  }
};

// Puts each target's `width` results, computed in `order`, where the batch has the target.
template <class T>
void reorder(const std::vector<int64_t>& order, int64_t width, std::vector<T>& scratch, T* results) {
  if (results == nullptr) return;
  scratch.assign(results, results + static_cast<int64_t>(order.size()) * width);
  for (size_t i = 0; i < order.size(); ++i) {
    std::copy_n(scratch.data() + static_cast<int64_t>(i) * width, width, results + order[i] * width);
  }
}

// The head's errors are not averaged away by later layers: it rounds one step less than the encoder.
Precision head_precision(Precision precision) {
  switch (precision) {
    case Precision::int8: return Precision::bfloat16;
    case Precision::bfloat16: return Precision::bf16x3;
    default: return precision;
  }
}

Head make_head(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa) {
  const WeightView decoder =
      weights.tensor(weights.has(Role::decoder_weight) ? Role::decoder_weight : Role::word_embeddings);
  const auto rows = [&](int64_t first, int64_t count, float* values) {
    decoder.read(first * decoder.columns, count * decoder.columns, values);
  };
  const std::vector<float> bias = spec.decoder_bias ? weights.floats(Role::decoder_bias) : std::vector<float>();
  return Head(rows, bias.empty() ? nullptr : bias.data(), nullptr, spec.vocab_size, spec.embedding_size,
              head_precision(precision), isa);
}

}  // namespace

Model::Model(const std::string& folder, Precision precision, Isa isa)
    : Model(read_model_spec(folder), folder, precision, isa) {}

Model::Model(const ModelSpec& spec, const std::string& folder, Precision precision, Isa isa)
    : Model(spec, Weights(folder, spec), precision, isa) {}

Model::Model(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa)
    : encoder_(spec, weights, precision, isa), head_(make_head(spec, weights, precision, isa)) {}

void Model::score(const RowBatch& batch, const HeadOutputs& outputs) const {
  check_row_batch(batch, spec());
  thread_local Places places;
  thread_local AlignedBuffer features;
  thread_local std::vector<float> floats;
  thread_local std::vector<int32_t> integers;
  places.group(batch);
  const int64_t num_places = static_cast<int64_t>(places.positions.size());
  float* hidden = features.reserve(num_places * spec().embedding_size);
  encoder_.encode(batch, places.row_offsets.data(), places.positions.data(), hidden);
  head_.score({hidden, num_places, places.ids.data(), places.target_offsets.data()}, outputs);
  reorder(places.order, 1, floats, outputs.log_prob);
  reorder(places.order, 1, floats, outputs.logit);
  reorder(places.order, 1, integers, outputs.rank);
  reorder(places.order, 1, floats, outputs.entropy);
  reorder(places.order, outputs.top_k, integers, outputs.top_ids);
  reorder(places.order, outputs.top_k, floats, outputs.top_log_probs);
}

}  // namespace mlmfast
