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
#include "mlmfast/linear_score.h"
#include "mlmfast/linear_scoring_rule.h"
#include "mlmfast/model.h"
#include "read_encoder.h"

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

mlmfast::Isa chosen_isa(const std::string& name) {
  return name.empty() ? mlmfast::default_isa() : mlmfast::isa_from_name(name);
}

mlmfast::Head make_head(const Array<float>& weight, const std::optional<Array<float>>& bias,
                        const std::optional<Array<uint8_t>>& subset, const std::string& isa) {
  if (weight.ndim() != 2 || weight.size() == 0) {
    throw std::invalid_argument("weight must be a matrix [V, H] that is not empty");
  }
  const py::ssize_t vocab_size = weight.shape(0), hidden_size = weight.shape(1);
  if (bias) expect_shape(*bias, "bias", {vocab_size});
  if (subset) expect_shape(*subset, "subset", {vocab_size});
  const mlmfast::Isa chosen = chosen_isa(isa);
  const float* bias_data = bias ? bias->data() : nullptr;
  const uint8_t* subset_data = subset ? subset->data() : nullptr;
  py::gil_scoped_release release;
  return mlmfast::Head(mlmfast::rows_of(weight.data(), hidden_size), bias_data, subset_data, vocab_size,
                       hidden_size, mlmfast::Precision::float32, chosen);
}

// What is asked of each target beside its log-probability.
struct Asked {
  bool logit, logits, rank, entropy, subset_log_prob;
  int64_t top_k;
};

// The arrays results are written to, one per kind that is asked for.
struct ResultArrays {
  std::optional<Array<float>> log_probs, logit, logits, entropies, subset_log_probs, top_log_probs;
  std::optional<Array<int32_t>> ranks, top_ids;

  mlmfast::HeadOutputs outputs(py::ssize_t num_targets, py::ssize_t vocab_size, const Asked& asked) {
    return {
        .log_prob = allocate(log_probs, true, {num_targets}),
        .logit = allocate(logit, asked.logit, {num_targets}),
        .logits = allocate(logits, asked.logits, {num_targets, vocab_size}),
        .rank = allocate(ranks, asked.rank, {num_targets}),
        .entropy = allocate(entropies, asked.entropy, {num_targets}),
        .subset_log_prob = allocate(subset_log_probs, asked.subset_log_prob, {num_targets}),
        .top_k = asked.top_k,
        .top_ids = allocate(top_ids, asked.top_k > 0, {num_targets, asked.top_k}),
        .top_log_probs = allocate(top_log_probs, asked.top_k > 0, {num_targets, asked.top_k}),
    };
  }

  py::dict dict() const {
    py::dict results;
    results["log_prob"] = log_probs;
    results["logit"] = logit;
    results["logits"] = logits;
    results["rank"] = ranks;
    results["entropy"] = entropies;
    results["subset_log_prob"] = subset_log_probs;
    results["top_ids"] = top_ids;
    results["top_log_probs"] = top_log_probs;
    return results;
  }
};

py::dict score(const mlmfast::Head& head, const Array<float>& hidden, const Array<int32_t>& target_ids,
               const Array<int64_t>& target_offsets, bool logit, bool logits, bool rank, bool entropy,
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
  const mlmfast::HeadOutputs outputs = results.outputs(
      num_targets, head.vocab_size(), {logit, logits, rank, entropy, subset_log_prob, top_k});
  {
    py::gil_scoped_release release;
    head.score(inputs, outputs);
  }
  return results.dict();
}

mlmfast::Model make_model(const std::string& folder, const std::string& precision, const std::string& isa) {
  const mlmfast::Isa chosen = chosen_isa(isa);
  const mlmfast::Precision numbers = mlmfast::precision_from_name(precision);
  py::gil_scoped_release release;
  return mlmfast::Model(folder, numbers, chosen);
}

py::dict score_rows(const mlmfast::Model& model, const Array<int32_t>& input_ids,
                    const Array<int64_t>& text_offsets, const std::optional<Array<int32_t>>& token_type_ids,
                    const Array<int32_t>& row_text, const Array<int32_t>& mask_positions,
                    const Array<int64_t>& mask_offsets, const Array<int32_t>& target_positions,
                    const Array<int32_t>& target_ids, const Array<int64_t>& target_offsets,
                    int32_t mask_token_id, bool logit, bool logits, bool rank, bool entropy,
                    int64_t top_k) {
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
  const mlmfast::HeadOutputs outputs = results.outputs(num_targets, model.spec().vocab_size,
                                                       {logit, logits, rank, entropy, false, top_k});
  {
    py::gil_scoped_release release;
    model.score(batch, outputs);
  }
  return results.dict();
}

// A matrix of floats, or of bfloat16 as uint16, that may have no rows.
mlmfast::WeightView view_of(const py::array& matrix, const char* name) {
  const bool is_float = py::isinstance<Array<float>>(matrix), is_bf16 = py::isinstance<Array<uint16_t>>(matrix);
  if (matrix.ndim() != 2 || matrix.shape(1) == 0 || (!is_float && !is_bf16)) {
    throw std::invalid_argument(std::string(name) +
                                " must be a C-contiguous float32 or uint16 (bfloat16) matrix with columns");
  }
  return {static_cast<const std::byte*>(matrix.data()), is_float ? mlmfast::DType::f32 : mlmfast::DType::bf16,
          matrix.shape(0), matrix.shape(1)};
}

mlmfast::LinearScoringRule linear_scoring_rule(const py::array& input, const py::array& weight,
                                               const std::optional<Array<float>>& bias, const Array<int64_t>& targets,
                                               const mlmfast::ScoringRule& rule, const std::string& precision,
                                               const std::string& isa, int64_t num_threads) {
  const mlmfast::WeightView rows = view_of(input, "input"), classes = view_of(weight, "weight");
  if (bias) expect_shape(*bias, "bias", {classes.rows});
  expect_shape(targets, "targets", {rows.rows});
  return {rows,
          classes,
          bias ? bias->data() : nullptr,
          targets.data(),
          rule,
          mlmfast::precision_from_name(precision),
          chosen_isa(isa),
          num_threads};
}

void rule_forward(const py::array& input, const py::array& weight, const std::optional<Array<float>>& bias,
                  const Array<int64_t>& targets, const mlmfast::ScoringRule& rule, const std::string& precision,
                  const std::string& isa, int64_t num_threads, Array<float> losses, Array<float> coefficients) {
  const auto call = linear_scoring_rule(input, weight, bias, targets, rule, precision, isa, num_threads);
  expect_shape(losses, "losses", {call.input.rows});
  expect_shape(coefficients, "coefficients", {call.input.rows, mlmfast::kNumCoefficients});
  float *losses_data = losses.mutable_data(), *coefficients_data = coefficients.mutable_data();
  py::gil_scoped_release release;
  mlmfast::linear_scoring_rule_forward(call, losses_data, coefficients_data);
}

void* gradient_data(std::optional<py::array>& gradient, const mlmfast::WeightView& factor, const char* name) {
  if (!gradient) return nullptr;
  const mlmfast::WeightView view = view_of(*gradient, name);
  expect_shape(*gradient, name, {factor.rows, factor.columns});
  if (view.dtype != factor.dtype) throw std::invalid_argument(std::string(name) + " must have the type of its factor");
  return gradient->mutable_data();
}

void rule_backward(const py::array& input, const py::array& weight, const std::optional<Array<float>>& bias,
                   const Array<int64_t>& targets, const mlmfast::ScoringRule& rule, const std::string& precision,
                   const std::string& isa, int64_t num_threads, const Array<float>& coefficients, const Array<float>& upstream,
                   std::optional<py::array> input_gradient, std::optional<py::array> weight_gradient,
                   std::optional<Array<float>> bias_gradient) {
  const auto call = linear_scoring_rule(input, weight, bias, targets, rule, precision, isa, num_threads);
  expect_shape(coefficients, "coefficients", {call.input.rows, mlmfast::kNumCoefficients});
  expect_shape(upstream, "upstream", {call.input.rows});
  if (bias_gradient) expect_shape(*bias_gradient, "bias_gradient", {call.weight.rows});
  const mlmfast::LinearGradients gradients{gradient_data(input_gradient, call.input, "input_gradient"),
                                           gradient_data(weight_gradient, call.weight, "weight_gradient"),
                                           bias_gradient ? bias_gradient->mutable_data() : nullptr};
  py::gil_scoped_release release;
  mlmfast::linear_scoring_rule_backward(call, coefficients.data(), upstream.data(), gradients);
}

// Scores [rules, targets] and what else is asked of rows and targets, the weight packed as it passes.
py::dict linear_score(const Array<float>& input, const py::array& weight, const std::optional<Array<float>>& bias,
                      const Array<int32_t>& target_ids, const Array<int64_t>& target_offsets,
                      const std::vector<std::string>& rules, const std::string& precision, const std::string& isa,
                      int64_t num_threads, bool lse, bool rank, bool entropy, int64_t top_k) {
  const mlmfast::WeightView classes = view_of(weight, "weight");
  const py::ssize_t num_rows = input.ndim() > 0 ? input.shape(0) : 0, num_targets = target_ids.size();
  expect_shape(input, "input", {num_rows, classes.columns});
  expect_shape(target_ids, "target_ids", {num_targets});
  expect_shape(target_offsets, "target_offsets", {num_rows + 1});
  if (bias) expect_shape(*bias, "bias", {classes.rows});
  mlmfast::check_top_k(top_k, classes.rows);
  const mlmfast::HeadInputs inputs{input.data(), num_rows, target_ids.data(), target_offsets.data()};
  mlmfast::check_head_inputs(inputs, num_targets, classes.rows);
  std::vector<mlmfast::ScoringRule> scored;
  for (const std::string& name : rules) scored.push_back({mlmfast::rule_from_name(name)});
  Array<float> scores({static_cast<py::ssize_t>(rules.size()), num_targets});
  std::optional<Array<double>> lses;
  ResultArrays results;
  mlmfast::LinearScores outputs{.scores = scores.mutable_data(), .lse = allocate(lses, lse, {num_rows}), .head = {}};
  outputs.head = results.outputs(num_targets, classes.rows, {true, false, rank, entropy, false, top_k});
  const mlmfast::LinearScore call{classes, bias ? bias->data() : nullptr, scored, mlmfast::precision_from_name(precision),
                                  chosen_isa(isa), num_threads};
  {
    py::gil_scoped_release release;
    mlmfast::linear_score(call, inputs, outputs);
  }
  py::dict columns = results.dict();
  columns["scores"] = scores;
  columns["lse"] = lses;
  return columns;
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
           py::arg("logits") = false, py::arg("rank") = false, py::arg("entropy") = false, py::arg("subset_log_prob") = false,
           py::arg("top_k") = 0)
      .def_property_readonly("isa", [](const mlmfast::Head& head) { return mlmfast::isa_name(head.isa()); });

  py::class_<mlmfast::ScoringRule>(m, "ScoringRule")
      .def(py::init([](const std::string& name, double smoothing, bool masked_log) {
             return mlmfast::ScoringRule{mlmfast::rule_from_name(name), smoothing, masked_log};
           }),
           py::arg("name"), py::arg("smoothing"), py::arg("masked_log"));
  m.def("linear_scoring_rule_forward", &rule_forward, py::arg("input").noconvert(), py::arg("weight").noconvert(),
        py::arg("bias").noconvert(), py::arg("targets").noconvert(), py::arg("rule"), py::arg("precision"),
        py::arg("isa"), py::arg("num_threads"), py::arg("losses").noconvert(), py::arg("coefficients").noconvert());
  m.def("linear_scoring_rule_backward", &rule_backward, py::arg("input").noconvert(), py::arg("weight").noconvert(),
        py::arg("bias").noconvert(), py::arg("targets").noconvert(), py::arg("rule"), py::arg("precision"),
        py::arg("isa"), py::arg("num_threads"), py::arg("coefficients").noconvert(), py::arg("upstream").noconvert(),
        py::arg("input_gradient").noconvert(), py::arg("weight_gradient").noconvert(),
        py::arg("bias_gradient").noconvert());
  m.def("linear_score", &linear_score, py::arg("input").noconvert(), py::arg("weight").noconvert(),
        py::arg("bias").noconvert(), py::arg("target_ids").noconvert(), py::arg("target_offsets").noconvert(),
        py::arg("rules"), py::arg("precision"), py::arg("isa"), py::arg("num_threads"),
        py::kw_only(), py::arg("lse") = false,
        py::arg("rank") = false, py::arg("entropy") = false, py::arg("top_k") = 0);

  const auto model_error = py::register_exception<mlmfast::ModelError>(m, "ModelError");
  py::register_exception<mlmfast::UnsupportedModelError>(m, "UnsupportedModelError", model_error);
  m.def("read_encoder", &mlmfast::read_encoder, py::arg("folder"));
  py::class_<mlmfast::Model>(m, "Model")
      .def(py::init(&make_model), py::arg("folder"), py::arg("precision"), py::arg("isa") = "")
      .def("score", &score_rows, py::arg("input_ids").noconvert(), py::arg("text_offsets").noconvert(),
           py::arg("token_type_ids").noconvert(), py::arg("row_text").noconvert(),
           py::arg("mask_positions").noconvert(), py::arg("mask_offsets").noconvert(),
           py::arg("target_positions").noconvert(), py::arg("target_ids").noconvert(),
           py::arg("target_offsets").noconvert(), py::arg("mask_token_id"), py::kw_only(),
           py::arg("logit") = false, py::arg("logits") = false, py::arg("rank") = false,
           py::arg("entropy") = false, py::arg("top_k") = 0)
      .def_property_readonly("max_length", [](const mlmfast::Model& model) { return model.spec().max_length; });
}
