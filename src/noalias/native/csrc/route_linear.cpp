#include "route_linear.h"

#include "compat_functorch.h"
#include "linear.h"
#include "whole_types.h"

#include <ATen/ops/linear_native.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

namespace noalias {

namespace {

// It requires grad because its base does, and no gradient reaches it. PyTorch's
// composite takes differentiable views of it, which raise in backward once the base
// has been modified; what needs no gradient for it has nothing to raise about.
bool is_view_without_history(const Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  const auto* view = impl::get_view_autograd_meta(tensor);
  return view != nullptr && view->has_bw_view() &&
      view->get_creation_meta() ==
          torch::autograd::CreationMeta::NO_GRAD_MODE &&
      tensor.requires_grad();
}

// Whether matmul, which has no bias to add, folds the leading dimensions of this
// contiguous input (should_fold in aten/src/ATen/native/LinearAlgebra.cpp, the same
// in 2.9 to 2.15). It asks for the strides of dimensions of one element, too; where
// it does not fold, the product is a batched one and rounds otherwise.
bool is_folded_by_matmul(const Tensor& input) {
  if (input.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return true;
  }
  for (int64_t d = 0; d + 2 < input.dim() && input.numel() != 0; ++d) {
    if (input.stride(d) != input.stride(d + 1) * input.size(d + 1)) {
      return false;
    }
  }
  return true;
}

// Note [Where linear is routed]
//
// Only where the whole operator computes what PyTorch's composite computes, bit
// for bit and stride for stride: dense operands, an input whose leading
// dimensions fold without a copy, a bias for each feature. Everything else,
// every tracer, mode and subclass without a rule of its own, gets PyTorch's
// composite. So torch.compile, torch.export and make_fx see stock PyTorch.
bool is_routed(
    c10::DispatchKeySet keys,
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  const bool has_bias = bias.has_value() && bias->defined();
  if (input.dim() < 2 || weight.dim() != 2 ||
      input.layout() != c10::kStrided || weight.layout() != c10::kStrided ||
      input.is_nested() || weight.is_nested() || weight.is_quantized() ||
      (has_bias && (bias->dim() != 1 || !bias->is_contiguous()))) {
    return false;
  }
  // What cannot be computed raises PyTorch's own error.
  if (input.sym_size(-1) != weight.sym_size(1) ||
      input.scalar_type() != weight.scalar_type() ||
      (has_bias &&
       (bias->sym_size(0) != weight.sym_size(0) ||
        bias->scalar_type() != input.scalar_type()))) {
    return false;
  }
  const Tensor none;
  const Tensor& b = has_bias ? *bias : none;
  if (any_subclass({&input, &weight, &b})) {
    return all_have_own_rule({&input, &weight, &b});
  }
  // The transposed weight of PyTorch's composite, and the folded input, are views,
  // and a view of an inference tensor requires no gradient though the tensor may.
  if (input.is_inference() || weight.is_inference()) {
    return false;
  }
  if (is_view_without_history(input) || is_view_without_history(weight)) {
    return false;
  }
  const auto below = keys & c10::after_ADInplaceOrView_keyset;
  if (below.has_any(c10::DispatchKeySet(
          {c10::DispatchKey::Python, c10::DispatchKey::Functionalize}))) {
    return false;
  }
  return input.dim() == 2 ||
      (input.is_contiguous() && (has_bias || is_folded_by_matmul(input)));
}

Tensor linear_or_composite(
    c10::DispatchKeySet keys,
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  return is_routed(keys, input, weight, bias)
      ? linear_autograd(keys, input, weight, bias)
      : at::native::linear(input, weight, bias);
}

// Note [Bits under vmap]
//
// vmap of the whole operator multiplies as vmap of PyTorch's composite does, but in
// two cases: weights that alone are batched, which we stack and PyTorch repeats
// the input for, and a bias in half precision, which PyTorch adds to a product that
// has been rounded.
bool has_stocks_bits_under_vmap(
    const Tensor& input,
    const Tensor& weight,
    const OptionalTensor& bias) {
  const bool has_bias = bias.has_value() && bias->defined();
  const auto of_input = vmap_levels(input);
  const auto of_weight = vmap_levels(weight);
  const auto of_bias = has_bias ? vmap_levels(*bias) : 0;
  if ((of_input | of_weight | of_bias) == 0) {
    return true;
  }
  return (of_weight & ~of_input) == 0 &&
      !(has_bias && c10::isReducedFloatingType(input.scalar_type()));
}

// functorch has a composite of its own, in front of every level.
class FunctorchGuard final : public Guard {
 public:
  using Guard::Guard;

  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) override {
    const Tensor input = torch::jit::peek(*stack, 0, 3).toTensor();
    const Tensor weight = torch::jit::peek(*stack, 1, 3).toTensor();
    const OptionalTensor bias =
        torch::jit::peek(*stack, 2, 3).toOptional<Tensor>();
    if (is_functionalizing() || !is_routed(keys, input, weight, bias) ||
        !has_stocks_bits_under_vmap(input, weight, bias)) {
      call_stock(op, keys, stack);
      return;
    }
    torch::jit::drop(*stack, 3);
    torch::jit::push(*stack, call_linear(input, weight, bias));
  }
};

// The dispatcher warns whoever registers over a kernel for the same key, as must
// be done for functorch's composite. It is what was asked for, and undone.
class SilentWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

class LinearCure final : public Cure {
 public:
  LinearCure() {
    const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::linear", "");
    for (const auto key : autograd_backend_keys()) {
      libraries_
          .emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__)
          .impl("linear", TORCH_FN(linear_or_composite));
    }
    constexpr auto front = c10::DispatchKey::FuncTorchDynamicLayerFrontMode;
    if (op.hasKernelForDispatchKey(front)) {
      SilentWarnings silent;
      const c10::WarningUtils::WarningHandlerGuard guard(&silent);
      functorch_.add_for<FunctorchGuard>(op, front);
    }
  }

 private:
  std::vector<torch::Library> libraries_;
  Overrides functorch_;
};

} // namespace

std::unique_ptr<Cure> cure_linear() {
  return std::make_unique<LinearCure>();
}

} // namespace noalias
