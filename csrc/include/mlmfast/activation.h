// What follows a matrix product.
#pragma once

namespace mlmfast {

// gelu is the exact one, x Phi(x), of Hendrycks & Gimpel (2016); gelu_tanh their approximation by tanh.
enum class Activation { none, gelu, gelu_tanh, relu, silu };

}  // namespace mlmfast
