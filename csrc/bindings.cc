// The Python module mlmfast._core: array shapes in, pointers out, the GIL released in between.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "batch_checks.h"
#include "mlmfast/head.h"
#include "mlmfast/isa.h"
#include "mlmfast/model.h"

namespace py = pybind11;

namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

void expect_shape(const py::array& array, const char* name, std::initializer_list<py::ssize_t> shape) {
  if (array.ndim() == static_cast<py::ssize_t>(shape.size()) &&
      std::equal(shape.begin(), shape.end(), array.shape())) {
    return;
  }
  const auto text = [](const auto* begin, const auto* end) {
    std::string dims;
    for (; begin != end; ++begin) dims += (dims.empty() ? "" : ", ") + std::to_string(*begin);
    return "[" + dims + "]";
  };
  throw std::invalid_argument(std::string(name) + " must have shape " + text(shape.begin(), shape.end()) +
                              ", got " + text(array.shape(), array.shape() + array.ndim()));
}

template <class T>
T* allocate(std::optional<Array<T>>& array, bool wanted, std::initializer_list<py::ssize_t> shape) {
  if (!wanted) return nullptr;
  array.emplace(std::vector<py::ssize_t>(shape));
  return array->mutable_data();
}

mlmfast::Head make_head(const Array<float>& weight, const std::optional<Array<float>>& bias,
                        const std::optional<Array<uint8_t>>& subset, const std::string& isa) {
  if (weight.ndim() != 2 || weight.size() == 0) {
    throw std::invalid_argument("weight must be a matrix [V, H] that is not empty");
  }
  const py::ssize_t vocab_size = weight.shape(0), hidden_size = weight.shape(1);
  if (bias) expect_shape(*bias, "bias", {vocab_size});
  if (subset) expect_shape(*subset, "subset", {vocab_size});
  const mlmfast::Isa chosen = isa.empty() ? mlmfast::default_isa() : mlmfast::isa_from_name(isa);
  const float* bias_data = bias ? bias->data() : nullptr;
  const uint8_t* subset_data = subset ? subset->data() : nullptr;
  py::gil_scoped_release release;
  return mlmfast::Head(mlmfast::rows_of(weight.data(), hidden_size), bias_data, subset_data, vocab_size,
                       hidden_size, mlmfast::Precision::float32, chosen);
}

// The arrays results are written to, one per kind that is asked for.
struct ResultArrays {
  std::optional<Array<float>> log_probs, logits, entropies, subset_log_probs, top_log_probs;
  std::optional<Array<int32_t>> ranks, top_ids;

  mlmfast::HeadOutputs outputs(py::ssize_t num_targets, bool logit, bool rank, bool entropy,
                               bool subset_log_prob, int64_t top_k) {
    return {
        .log_prob = allocate(log_probs, true, {num_targets}),
        .logit = allocate(logits, logit, {num_targets}),
        .rank = allocate(ranks, rank, {num_targets}),
        .entropy = allocate(entropies, entropy, {num_targets}),
        .subset_log_prob = allocate(subset_log_probs, subset_log_prob, {num_targets}),
        .top_k = top_k,
        .top_ids = allocate(top_ids, top_k > 0, {num_targets, top_k}),
        .top_log_probs = allocate(top_log_probs, top_k > 0, {num_targets, top_k}),
    };
  }

  py::dict dict() const {
    py::dict results;
    results["log_prob"] = log_probs;
    results["logit"] = logits;
    results["rank"] = ranks;
    results["entropy"] = entropies;
    results["subset_log_prob"] = subset_log_probs;
    results["top_ids"] = top_ids;
    results["top_log_probs"] = top_log_probs;
    return results;
  }
};

py::dict score(const mlmfast::Head& head, const Array<float>& hidden, const Array<int32_t>& target_ids,
               const Array<int64_t>& target_offsets, bool logit, bool rank, bool entropy,
               bool subset_log_prob, int64_t top_k) {
  const py::ssize_t num_rows = hidden.ndim() > 0 ? hidden.shape(0) : 0, num_targets = target_ids.size();
  expect_shape(hidden, "hidden", {num_rows, head.hidden_size()});
  expect_shape(target_ids, "target_ids", {num_targets});
  expect_shape(target_offsets, "target_offsets", {num_rows + 1});
  mlmfast::check_top_k(top_k, head.vocab_size());
  if (subset_log_prob && !head.has_subset()) throw std::invalid_argument("this head has no subset");
  const mlmfast::HeadInputs inputs{hidden.data(), num_rows, target_ids.data(), target_offsets.data()};
  mlmfast::check_head_inputs(inputs, num_targets, head.vocab_size());

  ResultArrays results;
  const mlmfast::HeadOutputs outputs =
      results.outputs(num_targets, logit, rank, entropy, subset_log_prob, top_k);
  {
    py::gil_scoped_release release;
    head.score(inputs, outputs);
  }
  return results.dict();
}

mlmfast::Model make_model(const std::string& folder, const std::string& precision, const std::string& isa) {
  const mlmfast::Isa chosen = isa.empty() ? mlmfast::default_isa() : mlmfast::isa_from_name(isa);
  const mlmfast::Precision numbers = mlmfast::precision_from_name(precision);
  py::gil_scoped_release release;
  return mlmfast::Model(folder, numbers, chosen);
}

py::dict score_rows(const mlmfast::Model& model, const Array<int32_t>& input_ids,
                    const Array<int64_t>& text_offsets, const std::optional<Array<int32_t>>& token_type_ids,
                    const Array<int32_t>& row_text, const Array<int32_t>& mask_positions,
                    const Array<int64_t>& mask_offsets, const Array<int32_t>& target_positions,
                    const Array<int32_t>& target_ids, const Array<int64_t>& target_offsets,
                    int32_t mask_token_id, bool logit, bool rank, bool entropy, int64_t top_k) {
  const py::ssize_t num_texts = text_offsets.size() - 1, num_rows = row_text.size();
  const py::ssize_t num_targets = target_ids.size();
  if (num_texts < 0) throw std::invalid_argument("text_offsets must not be empty");
  expect_shape(text_offsets, "text_offsets", {num_texts + 1});
  expect_shape(row_text, "row_text", {num_rows});
  expect_shape(mask_offsets, "mask_offsets", {num_rows + 1});
  expect_shape(target_offsets, "target_offsets", {num_rows + 1});
  expect_shape(input_ids, "input_ids", {input_ids.size()});
  if (token_type_ids) expect_shape(*token_type_ids, "token_type_ids", {input_ids.size()});
  expect_shape(mask_positions, "mask_positions", {mask_positions.size()});
  expect_shape(target_ids, "target_ids", {num_targets});
  expect_shape(target_positions, "target_positions", {num_targets});
  mlmfast::check_top_k(top_k, model.spec().vocab_size);
  const mlmfast::RowBatch batch{input_ids.data(),
                                text_offsets.data(),
                                token_type_ids ? token_type_ids->data() : nullptr,
                                num_texts,
                                row_text.data(),
                                num_rows,
                                mask_positions.data(),
                                mask_offsets.data(),
                                target_positions.data(),
                                target_ids.data(),
                                target_offsets.data(),
                                mask_token_id};
  mlmfast::check_batch_lengths(batch, {input_ids.size(), mask_positions.size(), num_targets});
  ResultArrays results;
  const mlmfast::HeadOutputs outputs = results.outputs(num_targets, logit, rank, entropy, false, top_k);
  {
    py::gil_scoped_release release;
    model.score(batch, outputs);
  }
  return results.dict();
}

std::vector<std::string> available_isa_names() {
  std::vector<std::string> names;
  for (mlmfast::Isa isa : mlmfast::available_isas()) names.emplace_back(mlmfast::isa_name(isa));
  return names;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.def("cpu_features", &mlmfast::cpu_features);
  m.def("available_isas", &available_isa_names);
  m.def("isa", [] { return mlmfast::isa_name(mlmfast::default_isa()); });

  py::class_<mlmfast::Head>(m, "Head")
      .def(py::init(&make_head), py::arg("weight").noconvert(), py::arg("bias").noconvert(),
           py::arg("subset").noconvert(), py::arg("isa") = "")
      .def("score", &score, py::arg("hidden").noconvert(), py::arg("target_ids").noconvert(),
           py::arg("target_offsets").noconvert(), py::kw_only(), py::arg("logit") = false,
           py::arg("rank") = false, py::arg("entropy") = false, py::arg("subset_log_prob") = false,
           py::arg("top_k") = 0)
      .def_property_readonly("isa", [](const mlmfast::Head& head) { return mlmfast::isa_name(head.isa()); });

  const auto model_error = py::register_exception<mlmfast::ModelError>(m, "ModelError");
  py::register_exception<mlmfast::UnsupportedModelError>(m, "UnsupportedModelError", model_error);
  py::class_<mlmfast::Model>(m, "Model")
      .def(py::init(&make_model), py::arg("folder"), py::arg("precision"), py::arg("isa") = "")
      .def("score", &score_rows, py::arg("input_ids").noconvert(), py::arg("text_offsets").noconvert(),
           py::arg("token_type_ids").noconvert(), py::arg("row_text").noconvert(),
           py::arg("mask_positions").noconvert(), py::arg("mask_offsets").noconvert(),
           py::arg("target_positions").noconvert(), py::arg("target_ids").noconvert(),
           py::arg("target_offsets").noconvert(), py::arg("mask_token_id"), py::kw_only(),
           py::arg("logit") = false, py::arg("rank") = false, py::arg("entropy") = false, py::arg("top_k") = 0)
      .def_property_readonly("max_length", [](const mlmfast::Model& model) { return model.spec().max_length; });
}
