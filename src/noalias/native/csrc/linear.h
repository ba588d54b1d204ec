// linear as one operator: checks (linear_checks.cpp), products
// (linear_products.cpp, linear_strided.cpp, linear_sparse.cpp), history
// (linear_nodes.cpp, linear_history.cpp), forward mode (linear_tangents.cpp), the
// kernels for autograd (linear_autograd.cpp) and registration
// (linear_registration.cpp).
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
using Mask = std::array<bool, 3>;

// The operators themselves, through the dispatcher.
Tensor call_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);
LinearGradients call_linear_backward(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask);

// Whether a call is ours to answer: a strided input of at least 1 dimension and
// a weight of 2, strided or sparse. Every other call is handed to at::linear, so
// whoever stands in front of at::linear must ask this first.
bool is_ours(const Tensor& input, const Tensor& weight);

// How a bias is added: `kRows` expands to [rows, out] and joins the product,
// `kBroadcast` expands to [*, out] only.
enum class BiasForm { kNone, kRows, kBroadcast };

// input [*, in], weight [out, in], bias broadcastable to [*, out] -> [*, out].
// Raises where F.linear raises, naming shapes, dtypes or devices.
BiasForm check_linear(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);
void check_linear_backward(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask);

// Products without history of their own, made of PyTorch's operators. Called
// above autograd they are the composite that every mode and transform knows. The
// result is never a differentiable view.
Tensor linear_product(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);

// grad_output [*, out] -> (grad_input [*, in], grad_weight [out, in],
// grad_bias [out]); what output_mask does not ask for is undefined. input is
// needed for grad_weight only, weight for grad_input only: a frozen layer does
// not keep its input alive.
LinearGradients linear_backward_product(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask);

// The backends' kernels, below autograd: the products, or what reads a permuted
// input or a sparse weight as it lies.
Tensor linear_kernel(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);
LinearGradients linear_backward_kernel(
    const OptionalTensor& input,
    const Tensor& grad_output,
    const OptionalTensor& weight,
    Mask output_mask);

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
    Mask output_mask);

// What noalias.linear calls: the operator, or aten::linear where a mode would
// otherwise be handed the operator although whole capture is off.
Tensor linear_from_python(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias);

// Puts the kernels behind noalias::linear and noalias::linear_backward, whose
// schemas Python has defined. Once; later calls do nothing.
void register_linear();

// Whole capture: tracers, dispatch modes and subclasses are handed
// noalias::linear itself and not its composite. Process-wide.
bool whole_capture();
void set_whole_capture(bool on);

} // namespace noalias
