#include "mlmfast/encoder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "encoder_model.h"
#include "input_pool.h"
#include "mlmfast/aligned_buffer.h"

namespace mlmfast {
namespace {

constexpr int64_t kBlockTokens = 1024;  // rows are forwarded together up to this many tokens

float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::relu: return std::max(x, 0.0f);
    case Activation::silu: return x / (1.0f + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    default: return 0.5f * x * (1.0f + std::erf(x * 0.7071067811865476f));
  }
}

}  // namespace

// Scratch of one call at a time; it grows to the largest call and stays.
struct EncoderWorkspace {
  explicit EncoderWorkspace(const EncoderModel& model)
      : operand(model.products), inner(model.products), head_operand(model.head_products) {}

  InputPool inputs;
  std::vector<int64_t> rows;          // of the batch, in the order of the blocks
  std::vector<int64_t> row_starts;    // [rows of the block + 1] into its tokens
  std::vector<int64_t> place_starts;  // [rows of the block + 1] into its places
  std::vector<int32_t> positions;     // 0, 1, 2, ... up to the longest row
  AlignedBuffer embedded, pool, pool_qkv;  // [inputs, E], [inputs, H], [inputs, Pass::qkv_stride_]
  AlignedBuffer x, qkv;                    // [n, H], [n, Pass::qkv_stride_] and rows that are only read
  AlignedBuffer normal, context;           // [H], [longest row, H]
  AlignedBuffer place_x, place_query;      // [places, H], [places, Pass::part_words_] and likewise
  AlignedBuffer dense;                     // [places, E]
  AlignedBuffer packed_query, packed_keys; // [queries, *], [n, *] words of what waits as floats
  AlignedBuffer attention;                 // kernel scratch
  HiddenAttention::Scratch last_attention;
  Operand operand, inner, head_operand;
};

namespace {

// The kind of a row: whether its last layer attends over hidden states, as one with one mask, in which few tokens are
// likely to be wanted. It must not depend on what else the batch has, so that a row's bits do not.
bool attends_hidden(const EncoderModel& model, const RowBatch& batch, int64_t row) {
  return model.last_attention && batch.mask_offsets[row + 1] - batch.mask_offsets[row] == 1;
}

// A block of rows on its way through the layers.
class Pass {
 public:
  Pass(const EncoderModel& model, const RowBatch& batch, EncoderWorkspace& workspace)
      : model_(model), spec_(model.spec), batch_(batch), w_(workspace), hidden_(model.spec.hidden_size),
        part_words_(model.projects_packed ? hidden_ / 2 * model.packed_attention->num_planes : hidden_),
        qkv_stride_(model.projects_packed ? odd_lines(3 * part_words_) : 3 * hidden_) {}

  // Rows of one kind; the places of row r of the batch are place_positions[place_offsets[r]] and so on.
  void run(const int64_t* rows, int64_t num_rows, const int64_t* place_offsets, const int32_t* place_positions,
           float* features) {
    rows_ = rows;
    num_rows_ = num_rows;
    place_offsets_ = place_offsets;
    place_positions_ = place_positions;
    lay_out_rows();
    if (num_places_ == 0) return;
    w_.inputs.collect(spec_, batch_, rows_, num_rows_, w_.row_starts.data());
    embed_inputs();
    project_inputs();
    for (int64_t layer = 0; layer + 1 < spec_.num_layers; ++layer) run_layer(layer);
    run_last_layer();
    transform(features);
  }

 private:
  void lay_out_rows() {
    w_.row_starts.assign(1, 0);
    w_.place_starts.assign(1, 0);
    int64_t longest = 0;
    for (int64_t r = 0; r < num_rows_; ++r) {
      const int64_t row = rows_[r], length = batch_.length(row);
      w_.row_starts.push_back(w_.row_starts.back() + length);
      w_.place_starts.push_back(w_.place_starts.back() + place_offsets_[row + 1] - place_offsets_[row]);
      longest = std::max(longest, length);
    }
    num_tokens_ = w_.row_starts.back();
    num_places_ = w_.place_starts.back();
    if (static_cast<int64_t>(w_.positions.size()) < longest) {
      w_.positions.resize(longest);
      std::iota(w_.positions.begin(), w_.positions.end(), 0);
    }
    if (!model_.projects_packed) {
      w_.attention.reserve(model_.sequence.attention_scratch(longest, spec_.head_size()));
    }
    if (model_.packed_attention != nullptr) {
      w_.attention.reserve(model_.packed_attention->scratch(longest, spec_.num_heads, spec_.head_size()));
    }
  }

  // At least so many words, in an odd number of cache lines, to use every cache set.
  static int64_t odd_lines(int64_t num_words) { return ((num_words + 15) / 16 | 1) * 16; }

  void embed_inputs() {
    const int64_t size = spec_.embedding_size, num_inputs = w_.inputs.size();
    float* embedded = w_.embedded.reserve(num_inputs * size);
    w_.inputs.embed(model_, embedded);
    float* pool = w_.pool.reserve(num_inputs * hidden_);
    if (!model_.embedding_projection) {
      std::copy_n(embedded, num_inputs * size, pool);
      return;
    }
    assign(embedded, size, num_inputs);
    model_.embedding_projection->store(w_.operand, pool, hidden_);
  }

  void assign(const float* x, int64_t columns, int64_t rows) {
    w_.operand.resize(rows, columns);
    w_.operand.write(0, x, columns, rows);
  }

  // The normalised rows of x, or x itself where there is no norm, as the operand.
  void assign_normalised(const std::optional<Norm>& norm, const float* x, int64_t rows) {
    if (!norm) return assign(x, hidden_, rows);
    float* y = w_.normal.reserve(hidden_);
    w_.operand.resize(rows, hidden_);
    for (int64_t i = 0; i < rows; ++i) {
      norm->apply(model_.sequence, x + i * hidden_, hidden_, y);
      w_.operand.write(i, y, hidden_, 1);
    }
  }

  // x [rows, H] normalised in place, and as the operand.
  void normalise_and_assign(const Norm& norm, float* x, int64_t rows) {
    w_.operand.resize(rows, hidden_);
    for (int64_t i = 0; i < rows; ++i) {
      float* row = x + i * hidden_;
      norm.apply(model_.sequence, row, hidden_, row);
      w_.operand.write(i, row, hidden_, 1);
    }
  }

  // Queries, keys and values of the pool, and from them x and qkv of the block's tokens.
  void project_inputs() {
    const int64_t num_inputs = w_.inputs.size(), stride = qkv_stride_;
    const Layer& layer = model_.layer(0);
    float* pool_qkv = w_.pool_qkv.reserve(num_inputs * stride);
    const bool pre = spec_.norm_placement == NormPlacement::pre;
    const std::optional<Norm> none;
    assign_normalised(pre ? layer.attention_norm : none, w_.pool.data(), num_inputs);
    store_queries(layer, pool_qkv, stride);
    store_keys_and_values(layer, pool_qkv, stride);
    float* x = w_.x.reserve(num_tokens_ * hidden_);
    float* qkv = reserve_qkv();
    for (int64_t i = 0; i < num_tokens_; ++i) {
      const int64_t input = w_.inputs.of_token(i);
      std::copy_n(w_.pool.data() + input * hidden_, hidden_, x + i * hidden_);
      std::copy_n(pool_qkv + input * stride, stride, qkv + i * stride);
    }
  }

  float* reserve_qkv() { return w_.qkv.reserve((num_tokens_ + kAttentionRowUnit - 1) * qkv_stride_); }

  // Those of the operand, [rows, stride] words: of a row its query, key and value, floats or as packed attention reads
  // them: the query's high and low parts, the high parts of key and value, then their low ones.
  void store_queries(const Layer& layer, float* words, int64_t stride) {
    if (!model_.projects_packed) return layer.query.store(w_.operand, words, stride);
    layer.query.store_bf16(w_.operand, {words, stride, query_plane()});
  }
  void store_keys_and_values(const Layer& layer, float* words, int64_t stride) {
    float* from = words + part_words_;
    if (!model_.projects_packed) return layer.key_value.store(w_.operand, from, stride);
    layer.key_value.store_bf16(w_.operand, {from, stride, key_plane()});
  }

  // Words from high parts to low ones.
  int64_t query_plane() const { return hidden_ / 2; }
  int64_t key_plane() const { return hidden_; }

  // All heads of a query or key [H] turned to its position.
  void rotate(int64_t layer, float* vector, int64_t position) const {
    const RotaryTable& table = model_.rotary[model_.rotary_of_layer[layer]];
    for (int64_t h = 0; h < spec_.num_heads; ++h) {
      model_.sequence.rotate(vector + h * spec_.head_size(), table.cosines.data() + position * table.half,
                             table.sines.data() + position * table.half, table.half);
    }
  }

  // The context of the block's queries, of which those of row r are [query_starts[r], query_starts[r + 1]) and stand at
  // positions_of(r), as the operand.
  template <class PositionsOf>
  void attend(int64_t layer, const float* queries, int64_t query_stride, const int64_t* query_starts,
              const PositionsOf& positions_of) {
    w_.operand.resize(query_starts[num_rows_], hidden_);
    if (model_.packed_attention != nullptr && !spec_.attention[layer].is_local) {
      return attend_packed(queries, query_stride, query_starts);
    }
    for (int64_t r = 0; r < num_rows_; ++r) {
      const int64_t begin = query_starts[r], count = query_starts[r + 1] - query_starts[r];
      if (count == 0) continue;
      float* context = w_.context.reserve(count * hidden_);
      attend_row(layer, r, queries + begin * query_stride, query_stride, positions_of(r), count, context);
      w_.operand.write(begin, context, hidden_, count);
    }
  }

  void attend_packed(const float* queries, int64_t query_stride, const int64_t* query_starts) {
    PackedAttention a{};
    if (model_.projects_packed) {
      a.queries = queries;
      a.query_stride = query_stride;
      a.keys = w_.qkv.data() + part_words_;
      a.key_stride = qkv_stride_;
    } else {
      a.query_stride = odd_lines(hidden_ / 2 * model_.packed_attention->num_planes);
      a.queries = pack(queries, query_stride, hidden_, query_starts[num_rows_], w_.packed_query, a.query_stride);
      a.key_stride = odd_lines(hidden_ * model_.packed_attention->num_planes);
      a.keys = pack(w_.qkv.data() + hidden_, qkv_stride_, 2 * hidden_, num_tokens_, w_.packed_keys, a.key_stride);
    }
    a.values = a.keys + hidden_ / 2;
    a.query_plane = query_plane();
    a.key_plane = key_plane();
    a.row_starts = w_.row_starts.data();
    a.query_starts = query_starts;
    a.num_sequences = num_rows_;
    a.num_heads = spec_.num_heads;
    a.head_size = spec_.head_size();
    a.scale = 1.0f / std::sqrt(static_cast<float>(a.head_size));
    a.output = w_.operand.view();
    model_.packed_attention->attend(a, w_.attention.reserve(0));
    w_.operand.round_bf16();
  }

  // `size` floats of each of the rows as packed attention reads them.
  const float* pack(const float* rows, int64_t row_stride, int64_t size, int64_t num_rows, AlignedBuffer& packed,
                    int64_t packed_stride) const {
    float* words = packed.reserve((num_rows + kAttentionRowUnit - 1) * packed_stride);
    for (int64_t r = 0; r < num_rows; ++r) {
      model_.packed_attention->encode(rows + r * row_stride, size, words + r * packed_stride, size / 2);
    }
    return words;
  }

  // Attention of a row's queries over its keys and values in qkv, all heads.
  void attend_row(int64_t layer, int64_t r, const float* queries, int64_t query_stride, const int32_t* positions,
                  int64_t num_queries, float* output) {
    const int64_t size = spec_.head_size();
    const float* keys = w_.qkv.data() + w_.row_starts[r] * qkv_stride_ + hidden_;
    const AttentionWindow& window = spec_.attention[layer];
    HeadAttention a{};
    a.query_stride = query_stride;
    a.key_stride = qkv_stride_;
    a.query_positions = positions;
    a.num_queries = num_queries;
    a.length = w_.row_starts[r + 1] - w_.row_starts[r];
    a.head_size = size;
    a.scale = 1.0f / std::sqrt(static_cast<float>(size));
    a.reach = window.is_local ? window.half_window : -1;
    a.output_stride = hidden_;
    float* scratch = w_.attention.reserve(0);
    for (int64_t h = 0; h < spec_.num_heads; ++h) {
      a.queries = queries + h * size;
      a.keys = keys + h * size;
      a.values = keys + hidden_ + h * size;
      a.output = output + h * size;
      model_.sequence.attend(a, scratch);
    }
  }

  // After attention, whose output is the operand: x [rows, H] += its product, then the feed-forward network, norms
  // in place.
  void finish_layer(const Layer& layer, float* x, int64_t rows) {
    const bool post = spec_.norm_placement == NormPlacement::post;
    layer.attention_output.add(w_.operand, x, hidden_);
    if (post) {
      normalise_and_assign(*layer.attention_norm, x, rows);
    } else {
      assign_normalised(layer.mlp_norm, x, rows);
    }
    if (layer.gated_input) {
      layer.gated_input->activate(w_.operand, spec_.activation, w_.inner);
    } else {
      layer.mlp_input->activate(w_.operand, spec_.activation, w_.inner);
    }
    layer.mlp_output.add(w_.inner, x, hidden_);
    if (post) apply_norm(layer.mlp_norm, x, rows);
  }

  void apply_norm(const Norm& norm, float* x, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) norm.apply(model_.sequence, x + i * hidden_, hidden_, x + i * hidden_);
  }

  // Keys and values of all tokens, and queries if wanted, into qkv. The first layer has them already.
  void project(int64_t index, bool with_queries) {
    const Layer& layer = model_.layer(index);
    const std::optional<Norm> none;
    if (index > 0) {
      const bool pre = spec_.norm_placement == NormPlacement::pre;
      assign_normalised(pre ? layer.attention_norm : none, w_.x.data(), num_tokens_);
      float* qkv = reserve_qkv();
      if (with_queries) store_queries(layer, qkv, qkv_stride_);
      store_keys_and_values(layer, qkv, qkv_stride_);
    }
    if (spec_.position != Position::rotary) return;
    for (int64_t r = 0; r < num_rows_; ++r) {
      for (int64_t i = w_.row_starts[r]; i < w_.row_starts[r + 1]; ++i) {
        float* qkv = w_.qkv.reserve(0) + i * qkv_stride_;
        const int64_t position = i - w_.row_starts[r];
        if (with_queries) rotate(index, qkv, position);
        rotate(index, qkv + hidden_, position);
      }
    }
  }

  void run_layer(int64_t index) {
    project(index, true);
    attend(index, w_.qkv.data(), qkv_stride_, w_.row_starts.data(), [&](int64_t) { return w_.positions.data(); });
    finish_layer(model_.layer(index), w_.x.reserve(0), num_tokens_);
  }

  // Everything but keys and values at the places alone.
  void run_last_layer() {
    const int64_t index = spec_.num_layers - 1;
    const Layer& layer = model_.layer(index);
    float* x = w_.place_x.reserve(num_places_ * hidden_);
    for_each_place([&](int64_t place, int64_t row, int64_t position) {
      std::copy_n(w_.x.data() + (w_.row_starts[row] + position) * hidden_, hidden_, x + place * hidden_);
    });
    if (attends_hidden(model_, batch_, rows_[0])) {
      attend_hidden(layer, x);
    } else {
      attend_last(index, x);
    }
    finish_layer(layer, x, num_places_);
  }

  // The context of the places' hidden states x, as the operand.
  void attend_last(int64_t index, const float* x) {
    const Layer& layer = model_.layer(index);
    project(index, index == 0);
    float* queries = w_.place_query.reserve((num_places_ + kAttentionRowUnit - 1) * part_words_);
    if (index == 0) {
      for_each_place([&](int64_t place, int64_t row, int64_t position) {
        std::copy_n(w_.qkv.data() + (w_.row_starts[row] + position) * qkv_stride_, part_words_,
                    queries + place * part_words_);
      });
    } else {
      const bool pre = spec_.norm_placement == NormPlacement::pre;
      const std::optional<Norm> none;
      assign_normalised(pre ? layer.attention_norm : none, x, num_places_);
      store_queries(layer, queries, part_words_);
      if (spec_.position == Position::rotary) {
        for_each_place([&](int64_t place, int64_t, int64_t position) {
          rotate(index, queries + place * hidden_, position);
        });
      }
    }
    attend(index, queries, part_words_, w_.place_starts.data(),
           [&](int64_t r) { return place_positions_ + place_offsets_[rows_[r]]; });
  }

  // The same without keys and values.
  void attend_hidden(const Layer& layer, const float* x) {
    assign(x, hidden_, num_places_);
    float* queries = w_.place_query.reserve(num_places_ * hidden_);
    layer.query.store(w_.operand, queries, hidden_);
    model_.last_attention->attend(queries, w_.place_starts.data(), w_.x.data(), w_.row_starts.data(), num_rows_,
                                  w_.operand, w_.last_attention);
    assign(queries, hidden_, num_places_);
  }

  // function(place of the block, row of the block, position in the row)
  template <class Function>
  void for_each_place(Function function) const {
    for (int64_t r = 0; r < num_rows_; ++r) {
      const int32_t* positions = place_positions_ + place_offsets_[rows_[r]];
      for (int64_t p = w_.place_starts[r]; p < w_.place_starts[r + 1]; ++p) {
        function(p, r, int64_t{positions[p - w_.place_starts[r]]});
      }
    }
  }

  // Where the features of a place of the block go.
  float* place_features(float* features, int64_t place, int64_t row) const {
    return features + (place_offsets_[rows_[row]] + place - w_.place_starts[row]) * spec_.feature_size();
  }

  // A vocabulary head up to its decoder: dense, activation, norm.
  void transform(float* features) {
    const int64_t size = spec_.feature_size();
    float* x = w_.place_x.reserve(0);
    if (model_.final_norm) apply_norm(*model_.final_norm, x, num_places_);
    if (spec_.is_student()) {
      for_each_place([&](int64_t place, int64_t row, int64_t) {
        std::copy_n(x + place * size, size, place_features(features, place, row));
      });
      return;
    }
    Operand& operand = w_.head_operand;
    operand.resize(num_places_, hidden_);
    operand.write(0, x, hidden_, num_places_);
    float* dense = w_.dense.reserve(num_places_ * size);
    model_.head_dense->store(operand, dense, size);
    for (int64_t i = 0; i < num_places_ * size; ++i) dense[i] = activated(spec_.head_activation, dense[i]);
    for_each_place([&](int64_t place, int64_t row, int64_t) {
      model_.head_norm.apply(model_.sequence, dense + place * size, size, place_features(features, place, row));
    });
  }

  const EncoderModel& model_;
  const ModelSpec& spec_;
  const RowBatch& batch_;
  EncoderWorkspace& w_;
  const int64_t hidden_;
  const int64_t part_words_;  // of a token's queries, keys or values
  const int64_t qkv_stride_;  // words from token to token
  int64_t num_rows_ = 0, num_tokens_ = 0, num_places_ = 0;
  const int64_t* rows_ = nullptr;           // [num_rows_] of the batch
  const int64_t* place_offsets_ = nullptr;  // [rows of the batch + 1]
  const int32_t* place_positions_ = nullptr;
};

}  // namespace

// The workspaces no call is using.
struct EncoderWorkspaces {
  std::mutex mutex;
  std::vector<std::unique_ptr<EncoderWorkspace>> idle;
};

namespace {

class WorkspaceLease {
 public:
  WorkspaceLease(EncoderWorkspaces& workspaces, const EncoderModel& model) : workspaces_(workspaces) {
    const std::lock_guard lock(workspaces_.mutex);
    if (workspaces_.idle.empty()) {
      workspace_ = std::make_unique<EncoderWorkspace>(model);
    } else {
      workspace_ = std::move(workspaces_.idle.back());
      workspaces_.idle.pop_back();
    }
  }
  ~WorkspaceLease() {
    const std::lock_guard lock(workspaces_.mutex);
    try {
      workspaces_.idle.push_back(std::move(workspace_));
    } catch (const std::bad_alloc&) {
      // The list cannot grow: this workspace is freed.
    }
  }
  EncoderWorkspace& operator*() const { return *workspace_; }

 private:
  EncoderWorkspaces& workspaces_;
  std::unique_ptr<EncoderWorkspace> workspace_;
};

}  // namespace

Encoder::Encoder(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa)
    : model_(std::make_unique<EncoderModel>(spec, weights, precision, isa)),
      workspaces_(std::make_unique<EncoderWorkspaces>()) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

const ModelSpec& Encoder::spec() const { return model_->spec; }

void Encoder::encode(const RowBatch& batch, const int64_t* place_offsets, const int32_t* place_positions,
                     float* features) const {
  const WorkspaceLease workspace(*workspaces_, *model_);
  std::vector<int64_t>& rows = (*workspace).rows;
  rows.resize(batch.num_rows);
  std::iota(rows.begin(), rows.end(), 0);
  const auto kind = [&](int64_t row) { return attends_hidden(*model_, batch, row); };
  std::stable_partition(rows.begin(), rows.end(), kind);
  Pass pass(*model_, batch, *workspace);
  size_t first = 0;
  int64_t num_tokens = 0;
  for (size_t r = 0; r <= rows.size(); ++r) {
    const bool ends = r == rows.size() || num_tokens + batch.length(rows[r]) > kBlockTokens ||
                      kind(rows[r]) != kind(rows[first]);
    if (ends && r > first) {
      pass.run(rows.data() + first, static_cast<int64_t>(r - first), place_offsets, place_positions, features);
      first = r;
      num_tokens = 0;
    }
    if (r < rows.size()) num_tokens += batch.length(rows[r]);
  }
}

}  // namespace mlmfast
