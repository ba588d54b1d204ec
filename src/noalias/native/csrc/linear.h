// linear as one operator: products (linear_products.cpp), history
// (linear_autograd.cpp) and registration (linear_registration.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <array>
#include <optional>
#include <tuple>

namespace noalias {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using LinearGradients = std::tuple<Tensor, Tensor, Tensor>;

// The operator itself, through the dispatcher.
Tensor call_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);
LinearGradients call_linear_backward(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    std::array<bool, 3> output_mask);

// input [*, in], weight [out, in], bias broadcastable to [*, out] -> [*, out].
// Raises what F.linear raises, naming the shapes.
void check_linear_shapes(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);

// Products without history of their own. Called below autograd they record
// nothing; called above it they are the composite that every transform of
// PyTorch's knows. The result is never a differentiable view.
Tensor linear_product(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);

// grad_output [*, out] -> (grad_input [*, in], grad_weight [out, in],
// grad_bias [out]); what output_mask does not ask for is undefined. input is
// needed for grad_weight only, weight for grad_input only: a frozen layer does
// not keep its input alive.
LinearGradients linear_backward_products(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    std::array<bool, 3> output_mask);

// Kernels for the Autograd key.
Tensor linear_autograd(
    c10::DispatchKeySet keys,
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);
LinearGradients linear_backward_autograd(
    c10::DispatchKeySet keys,
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    std::array<bool, 3> output_mask);

// Puts the kernels behind noalias::linear and noalias::linear_backward, whose
// schemas Python has defined. Once; later calls do nothing.
void register_linear();

// Whole capture: tracers, dispatch modes and subclasses are handed
// noalias::linear itself and not its composite. Process-wide.
bool whole_capture();
void set_whole_capture(bool on);

} // namespace noalias
