#include "mlmfast/model.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "batch_checks.h"
#include "mlmfast/aligned_buffer.h"

namespace mlmfast {

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

namespace {

// Puts each target's `width` results, computed in `order`, a permutation, where the batch has the target.
template <class T>
void reorder(const std::vector<int64_t>& order, int64_t width, std::vector<T>& scratch, T* results) {
  if (results == nullptr || std::is_sorted(order.begin(), order.end())) return;
  scratch.assign(results, results + static_cast<int64_t>(order.size()) * width);
  for (size_t i = 0; i < order.size(); ++i) {
    std::copy_n(scratch.data() + static_cast<int64_t>(i) * width, width, results + order[i] * width);
  }
}

// The head's errors are not averaged away by later layers: int8 would show.
Precision head_precision(Precision precision) {
  return precision == Precision::int8 ? Precision::bfloat16 : precision;
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

// x . y in an order of its own, whatever the compiler.
float dot(const float* x, const float* y, int64_t size) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  const int64_t whole = size - size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  for (int64_t i = whole; i < size; ++i) sums[i - whole] += x[i] * y[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

void check_student_batch(const RowBatch& batch, const HeadOutputs& outputs, HeadKind head) {
  const auto reject = [](const char* what) { throw std::invalid_argument(what); };
  if (outputs.logit != nullptr || outputs.logits != nullptr || outputs.rank != nullptr ||
      outputs.entropy != nullptr || outputs.top_k > 0) {
    reject("a student gives log_prob alone: it has no distribution over the vocabulary");
  }
  if (batch.mask_offsets[batch.num_rows] > 0) reject("a student reads its rows unmasked, but there are masks");
  if (head != HeadKind::cls_student) return;
  const int32_t* positions = batch.target_positions;
  if (std::any_of(positions, positions + batch.num_targets(), [](int32_t position) { return position != 0; })) {
    reject("a student of head cls has one value, at position 0, but there are other target_positions");
  }
}

}  // namespace

Model::Model(const std::string& folder, Precision precision, Isa isa)
    : Model(read_model_spec(folder), folder, precision, isa) {}

Model::Model(const ModelSpec& spec, const std::string& folder, Precision precision, Isa isa)
    : Model(spec, Weights(folder, spec), precision, isa) {}

Model::Model(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa)
    : encoder_(spec, weights, precision, isa) {
  if (!spec.is_student()) {
    head_.emplace(make_head(spec, weights, precision, isa));
    return;
  }
  student_weight_ = weights.floats(Role::student_weight);
  student_bias_ = weights.floats(Role::student_bias)[0];
}

void Model::score_values(const Places& places, const float* features, float* values) const {
  const int64_t size = spec().hidden_size;
  for (size_t place = 0; place < places.positions.size(); ++place) {
    const float* hidden = features + static_cast<int64_t>(place) * size;
    const float value = dot(hidden, student_weight_.data(), size) + student_bias_;
    for (int64_t t = places.target_offsets[place]; t < places.target_offsets[place + 1]; ++t) {
      values[places.order[t]] = value;
    }
  }
}

void Model::score(const RowBatch& batch, const HeadOutputs& outputs) const {
  check_row_batch(batch, spec());
  if (spec().is_student()) check_student_batch(batch, outputs, spec().head);
  thread_local Places places;
  thread_local AlignedBuffer features;
  thread_local std::vector<float> floats;
  thread_local std::vector<int32_t> integers;
  places.group(batch);
  const int64_t num_places = static_cast<int64_t>(places.positions.size());
  float* hidden = features.reserve(num_places * spec().feature_size());
  encoder_.encode(batch, places.row_offsets.data(), places.positions.data(), hidden);
  if (spec().is_student()) return score_values(places, hidden, outputs.log_prob);
  head_->score({hidden, num_places, places.ids.data(), places.target_offsets.data()}, outputs);
  reorder(places.order, 1, floats, outputs.log_prob);
  reorder(places.order, 1, floats, outputs.logit);
  reorder(places.order, spec().vocab_size, floats, outputs.logits);
  reorder(places.order, 1, integers, outputs.rank);
  reorder(places.order, 1, floats, outputs.entropy);
  reorder(places.order, outputs.top_k, integers, outputs.top_ids);
  reorder(places.order, outputs.top_k, floats, outputs.top_log_probs);
}

}  // namespace mlmfast
