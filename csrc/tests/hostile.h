// Random inputs of the C API, sound ones and ones that a careless or hostile caller would pass. Whatever the
// numbers in them say, arrays are read no further than the C API promises to read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "c_api_testing.h"

namespace mlmfast::testing {

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}

  size_t below(size_t limit) { return random_() % limit; }
  bool once_in(size_t n) { return below(n) == 0; }

  template <class T, size_t n>
  T pick(T const (&choices)[n]) {
    return choices[below(n)];
  }

  // Near the ends of a range [0, limit), or far away from it.
  int64_t hostile(int64_t limit) {
    const int64_t choices[] = {-1, 0, limit - 1, limit, limit + 1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN,
                               static_cast<int64_t>(random_()), -static_cast<int64_t>(below(1000))};
    return pick(choices);
  }

  std::vector<int32_t> some_text(const mlmfast_info& info) {
    std::vector<int32_t> ids(1 + below(std::min<int64_t>(info.max_length, once_in(10) ? 64 : 9)));
    for (int32_t& id : ids) id = static_cast<int32_t>(below(info.vocab_size));
    return ids;
  }

  template <class Values>
  void spoil_one(Values& values, int64_t limit) {
    if (!values.empty()) values[below(values.size())] = static_cast<typename Values::value_type>(hostile(limit));
  }

  Rows some_rows(const mlmfast_info& info) {
    Rows rows;
    for (size_t texts = below(4); texts > 0; --texts) {
      const std::vector<int32_t> ids = some_text(info);
      rows.add_text(ids);
      for (size_t n = below(5); n > 0; --n) {
        std::vector<int32_t> masks(below(3)), targets(below(4));
        for (int32_t& position : masks) position = static_cast<int32_t>(below(ids.size()));
        for (int32_t& position : targets) position = static_cast<int32_t>(below(ids.size()));
        rows.add_row(masks, targets);
      }
    }
    if (once_in(3)) rows.token_type_ids.assign(rows.input_ids.size(), 0);
    // A copy's arrays have no room beyond their end, where reading would go unnoticed.
    return Rows(std::as_const(rows));
  }

  void spoil_arrays(Rows& rows, const mlmfast_info& info) {
    switch (below(9)) {
      case 0: return spoil_one(rows.text_offsets, static_cast<int64_t>(rows.input_ids.size()));
      case 1: return spoil_one(rows.input_ids, info.vocab_size);
      case 2: return spoil_one(rows.token_type_ids, 2);
      case 3: return spoil_one(rows.row_text, static_cast<int64_t>(rows.text_offsets.size()) - 1);
      case 4: return spoil_one(rows.mask_offsets, static_cast<int64_t>(rows.mask_positions.size()));
      case 5: return spoil_one(rows.mask_positions, info.max_length);
      case 6: return spoil_one(rows.target_offsets, static_cast<int64_t>(rows.target_ids.size()));
      case 7: return spoil_one(rows.target_positions, info.max_length);
      default: return spoil_one(rows.target_ids, info.vocab_size);
    }
  }

  // A count that no array is as long as, or that leaves some of one out; a pointer to nothing; a wrong id.
  void spoil_fields(mlmfast_batch& batch, mlmfast_outputs& outputs, const mlmfast_info& info) {
    const int64_t no_counts[] = {-1, int64_t{1} << 31, INT64_MAX, INT64_MIN};
    int64_t* const counts[] = {&batch.num_texts, &batch.num_tokens, &batch.num_rows, &batch.num_masks,
                               &batch.num_targets};
    int64_t& count = *pick(counts);
    switch (below(5)) {
      case 0: count = pick(no_counts); break;
      case 1: count = static_cast<int64_t>(below(count + 1)); break;
      case 2: drop_pointer(batch, outputs); break;
      case 3: batch.mask_token_id = hostile(info.vocab_size); break;
      default: outputs.top_k = once_in(2) ? info.vocab_size + 1 + static_cast<int64_t>(below(9)) : -1; break;
    }
  }

  // A copy of a struct on the heap, of the size it says it has; what is beyond the struct mostly 0.
  template <class Struct>
  std::vector<char> resized(const Struct& known) {
    const size_t size = once_in(2) ? below(2 * sizeof(Struct)) : sizeof(Struct) + 8 * below(500);
    std::vector<char> bytes(std::max(size, sizeof(size_t)), 0);
    std::memcpy(bytes.data(), &known, std::min(bytes.size(), sizeof(Struct)));
    if (once_in(3)) bytes.back() = 1;
    const size_t stated = once_in(10) ? SIZE_MAX - below(3) : size;
    std::memcpy(bytes.data(), &stated, sizeof stated);
    return bytes;
  }

 private:
  void drop_pointer(mlmfast_batch& batch, mlmfast_outputs& outputs) {
    switch (below(9)) {
      case 0: batch.text_offsets = nullptr; break;
      case 1: batch.input_ids = nullptr; break;
      case 2: batch.row_text = nullptr; break;
      case 3: batch.mask_offsets = nullptr; break;
      case 4: batch.mask_positions = nullptr; break;
      case 5: batch.target_offsets = nullptr; break;
      case 6: batch.target_ids = nullptr; break;
      case 7: outputs.log_prob = nullptr; break;
      default: outputs.top_ids = nullptr; break;
    }
  }

  std::mt19937 random_;
};

}  // namespace mlmfast::testing
