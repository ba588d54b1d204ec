#include "owned_gradient.h"

#include "counters.h"
#include "owned_formulas.h"
#include "owned_memory.h"
#include "stock_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/hardshrink_backward_ops.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softshrink_backward_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

namespace noalias {

namespace owned {

namespace {

using c10::DispatchKeySet;

// How the result of an operator is written into the memory of its gradient, and
// whether the operator would have allocated a tensor like the gradient. Kernels
// built on TensorIterator take an operand for their result as a matter of course.
template <typename Out>
struct Elementwise {
  template <typename... Rest>
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Rest&... /*rest*/) {
    return std::all_of(
               others.begin(),
               others.end(),
               [&](const Tensor* other) {
                 return is_ordinary_cpu(*other) && !has_tangent(*other) &&
                     at::is_expandable_to(other->sizes(), gradient.sizes()) &&
                     at::native::result_type(gradient, *other) ==
                     gradient.scalar_type();
               }) &&
        has_strides_of_result(gradient, others);
  }

  template <typename... Args>
  static void write(DispatchKeySet keys, Args&&... args) {
    Out::redispatch(keys, std::forward<Args>(args)...);
  }
};

// A number in the gradient's dtype, or nothing where no conversion is needed. The
// iterator would convert it, too, by way of four more operators: in a loop of small
// steps that is as much as the product.
std::optional<Tensor> converted_number(
    const Tensor& gradient,
    const Tensor& other) {
  if (other.dim() != 0 || gradient.scalar_type() != at::kFloat ||
      (other.scalar_type() != at::kDouble && other.scalar_type() != at::kLong)) {
    return std::nullopt;
  }
  Tensor number = at::detail::empty_cpu({}, gradient.options());
  *number.mutable_data_ptr<float>() = other.scalar_type() == at::kDouble
      ? static_cast<float>(*other.const_data_ptr<double>())
      : static_cast<float>(*other.const_data_ptr<int64_t>());
  return number;
}

template <typename Out>
struct WithTensorOrNumber : Elementwise<Out> {
  static void write(
      DispatchKeySet keys,
      const Tensor& gradient,
      const Tensor& other,
      Tensor& result) {
    const auto number = converted_number(gradient, other);
    Out::redispatch(keys, gradient, number.value_or(other), result);
  }
};

// Compilers make two versions of the loop that divides complex numbers, one for a
// result that overlaps an operand and one for a result that does not, and in
// complex64 these two round differently. So stock's bits come with a tensor of its
// own only.
struct Division : WithTensorOrNumber<at::_ops::div_out> {
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Tensor& /*other*/) {
    return !gradient.is_complex() &&
        Elementwise<at::_ops::div_out>::result_is_like(gradient, others);
  }
};

// Softmax is no elementwise operator, but its CPU kernels read a row to the end, for
// the sum, before they write the first element of it, and from then on are.
template <typename Out>
struct RowByRow : Elementwise<Out> {
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> others,
      const Tensor& output,
      int64_t /*dim*/,
      at::ScalarType input_dtype) {
    return input_dtype == gradient.scalar_type() &&
        output.sizes() == gradient.sizes() && output.is_contiguous() &&
        is_canonically_contiguous(gradient) &&
        Elementwise<Out>::result_is_like(gradient, others);
  }
};

// The result of masked_fill is always contiguous, and its kernel in place only.
struct MaskedFill {
  static bool result_is_like(
      const Tensor& gradient,
      c10::ArrayRef<const Tensor*> /*others*/,
      const Tensor& mask,
      const at::Scalar& /*value*/) {
    return is_ordinary_cpu(mask) &&
        at::is_expandable_to(mask.sizes(), gradient.sizes()) &&
        is_canonically_contiguous(gradient);
  }

  static void write(
      DispatchKeySet keys,
      const Tensor& /*gradient*/,
      const Tensor& mask,
      const at::Scalar& value,
      Tensor& result) {
    at::_ops::masked_fill__Scalar::redispatch(keys, result, mask, value);
  }
};

bool has_only_pytorchs_kernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
}

// Where StockKernel does not reach: the kernel as it was found, looked up once and
// kept until the process ends.
template <typename Op>
struct Boxed {
  static bool is_reachable(const c10::OperatorHandle& op) {
    if (!kernel().has_value()) {
      kernel().emplace(
          op.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU));
    }
    return true;
  }

  template <typename... Args>
  static Tensor call(DispatchKeySet keys, Args&&... args) {
    torch::jit::Stack stack;
    torch::jit::push(stack, std::forward<Args>(args)...);
    kernel()->callBoxed(kernel()->opHandle(), keys, &stack);
    return torch::jit::pop(stack).toTensor();
  }

 private:
  static std::optional<c10::SafeKernelFunction>& kernel() {
    static std::optional<c10::SafeKernelFunction> found;
    return found;
  }
};

template <typename T>
constexpr bool is_tensor = std::is_same_v<std::decay_t<T>, Tensor>;

// Stands in front of an operator that formulas call with their gradient first.
// `Stock` is PyTorch's kernel, `Write` knows the result, `Formula` which call is the
// last to read the gradient.
template <typename Stock, typename Write, typename Formula, typename Schema>
struct InFront;

template <typename Stock, typename Write, typename Formula, typename... Rest>
struct InFront<Stock, Write, Formula, Tensor(const Tensor&, Rest...)> {
  static Tensor kernel(
      DispatchKeySet keys,
      const Tensor& gradient,
      Rest... rest) {
    if (c10::GradMode::is_enabled() || !may_overwrite(keys, gradient, rest...)) {
      return Stock::call(keys, gradient, rest...);
    }
    Tensor result = in_memory_of(gradient);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Write::write(
        keys & c10::after_ADInplaceOrView_keyset, gradient, rest..., result);
    count(counters().gradients_reused);
    count(counters().gradient_bytes_reused, gradient.nbytes());
    return result;
  }

 private:
  // Cheapest first: most calls end at the running node, the rest of those that
  // fail at the count of owners.
  static bool may_overwrite(
      DispatchKeySet keys,
      const Tensor& gradient,
      const std::decay_t<Rest>&... rest) {
    const auto node = torch::autograd::get_current_node();
    return node && is_unobserved(keys) && is_ordinary_cpu(gradient) &&
        gradient.use_count() == 1 && gradient.dim() > 0 && gradient.numel() > 0 &&
        Formula::last_use(*node, gradient) && is_sole_owner(gradient) &&
        !has_tangent(gradient) &&
        Write::result_is_like(gradient, tensors_among(rest...), rest...);
  }

  static auto tensors_among(const std::decay_t<Rest>&... rest) {
    std::array<const Tensor*, (0 + ... + int{is_tensor<Rest>})> found{};
    [[maybe_unused]] size_t count = 0;
    [[maybe_unused]] const auto keep = [&](const auto& argument) {
      if constexpr (is_tensor<decltype(argument)>) {
        found[count++] = &argument;
      }
    };
    (keep(rest), ...);
    return found;
  }
};

// PyTorch's own kernels come back when this is dropped. Ours are plain functions,
// so a thread that is inside one is not disturbed.
class OwnedGradients final : public Cure {
 public:
  template <
      typename Op,
      typename Write,
      typename Formula,
      typename Stock = StockKernel<Op>>
  void add() {
    using Kernel = InFront<Stock, Write, Formula, typename Op::schema>;
    const auto op = StockKernel<Op>::handle();
    if (has_only_pytorchs_kernel(op) && Stock::is_reachable(op)) {
      library_.impl(
          c10::toString(op.operator_name()).c_str(), TORCH_FN(Kernel::kernel));
    }
  }

  // A backward operator that these nodes call.
  template <typename Op, typename Out, typename... Nodes>
  void add_backward() {
    add<Op, Elementwise<Out>, CalledBy<Nodes...>>();
  }

 private:
  torch::Library library_{
      torch::Library::IMPL,
      "aten",
      c10::DispatchKey::AutogradCPU,
      __FILE__,
      __LINE__};
};

std::unique_ptr<Cure> install() {
  using namespace at::_ops;
  using namespace torch::autograd::generated;
  auto cure = std::make_unique<OwnedGradients>();
  cure->add_backward<
      threshold_backward,
      threshold_backward_grad_input,
      ReluBackward0,
      ThresholdBackward0,
      ThresholdBackward1>();
  cure->add_backward<
      leaky_relu_backward,
      leaky_relu_backward_grad_input,
      LeakyReluBackward0,
      LeakyReluBackward1>();
  cure->add_backward<
      hardtanh_backward,
      hardtanh_backward_grad_input,
      HardtanhBackward0>();
  cure->add_backward<
      elu_backward,
      elu_backward_grad_input,
      EluBackward0,
      EluBackward1,
      CeluBackward0,
      CeluBackward1>();
  cure->add_backward<
      gelu_backward,
      gelu_backward_grad_input,
      GeluBackward0>();
  cure->add<
      silu_backward,
      Elementwise<silu_backward_grad_input>,
      CalledBy<SiluBackward0>,
      Boxed<silu_backward>>();
  cure->add_backward<
      tanh_backward,
      tanh_backward_grad_input,
      TanhBackward0>();
  cure->add_backward<
      sigmoid_backward,
      sigmoid_backward_grad_input,
      SigmoidBackward0>();
  cure->add_backward<
      softplus_backward,
      softplus_backward_grad_input,
      SoftplusBackward0>();
  cure->add_backward<
      softshrink_backward,
      softshrink_backward_grad_input,
      SoftshrinkBackward0>();
  cure->add_backward<
      hardshrink_backward,
      hardshrink_backward_grad_input,
      HardshrinkBackward0>();
  cure->add_backward<
      hardsigmoid_backward,
      hardsigmoid_backward_grad_input,
      HardsigmoidBackward0>();
  cure->add_backward<
      log_sigmoid_backward,
      log_sigmoid_backward_grad_input,
      LogSigmoidBackward0>();
  cure->add<
      _softmax_backward_data,
      RowByRow<_softmax_backward_data_out>,
      CalledBy<SoftmaxBackward0>>();
  cure->add<
      _log_softmax_backward_data,
      RowByRow<_log_softmax_backward_data_out>,
      CalledBy<LogSoftmaxBackward0>>();
  cure->add<mul_Tensor, WithTensorOrNumber<mul_out>, InMultiplication>();
  cure->add<div_Tensor, Division, InDivision>();
  cure->add<neg, Elementwise<neg_out>, InNegation>();
  cure->add<masked_fill_Scalar, MaskedFill, InMaskedFill>();
  return cure;
}

} // namespace

} // namespace owned

std::unique_ptr<Cure> cure_owned_gradients() {
  return owned::install();
}

} // namespace noalias
