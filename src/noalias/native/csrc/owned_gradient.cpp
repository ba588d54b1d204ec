#include "owned_gradient.h"

#include "counters.h"
#include "owned_formulas.h"
#include "owned_results.h"
#include "stock_kernel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/hardshrink_backward_ops.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softshrink_backward_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <c10/core/GradMode.h>

#include <array>
#include <optional>
#include <type_traits>
#include <utility>

namespace noalias {

namespace owned {

namespace {

using c10::BackendComponent;

bool has_only_pytorchs_kernel(
    const c10::OperatorHandle& op,
    c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
      !op.hasKernelForDispatchKey(key);
}

// Where StockKernel does not reach: the kernel as it was found, looked up once and
// kept until the process ends.
template <typename Op, BackendComponent backend>
struct Boxed {
  static bool is_reachable(const c10::OperatorHandle& op) {
    const auto key = c10::getAutogradKeyFromBackend(backend);
    if (!kernel().has_value() && op.hasComputedKernelForDispatchKey(key)) {
      kernel().emplace(op.getComputedKernelForDispatchKey(key));
    }
    return kernel().has_value();
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
    return node && is_unobserved(keys) && is_ordinary(gradient) &&
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

// The kernels of backward operators that read an element before they write it, and
// round the same wherever they write it: PyTorch's own. See Note [Backends of third
// parties] for the others.
constexpr std::array kKnown = {
    BackendComponent::CPUBit,
    BackendComponent::CUDABit,
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
  void add(c10::ArrayRef<BackendComponent> where) {
    using Kernel = InFront<Stock, Write, Formula, typename Op::schema>;
    const auto op = StockKernel<Op>::handle();
    for (const auto backend : where) {
      const auto key = c10::getAutogradKeyFromBackend(backend);
      if (has_only_pytorchs_kernel(op, key) && Stock::is_reachable(op)) {
        overrides_.add_function_for(op, key, TORCH_FN(Kernel::kernel));
      }
    }
  }

  // A backward operator that these nodes call.
  template <typename Op, typename Out, typename... Nodes>
  void add_backward() {
    add<Op, Elementwise<Out>, CalledBy<Nodes...>>(kKnown);
  }

  template <BackendComponent backend>
  void add_silu() {
    using namespace at::_ops;
    add<silu_backward,
        Elementwise<silu_backward_grad_input>,
        CalledBy<torch::autograd::generated::SiluBackward0>,
        Boxed<silu_backward, backend>>(backend);
  }

 private:
  Overrides overrides_;
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
  cure->add_silu<BackendComponent::CPUBit>();
  cure->add_silu<BackendComponent::CUDABit>();
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
      CalledBy<SoftmaxBackward0>>(BackendComponent::CPUBit);
  cure->add<
      _log_softmax_backward_data,
      RowByRow<_log_softmax_backward_data_out>,
      CalledBy<LogSoftmaxBackward0>>(BackendComponent::CPUBit);
  cure->add<mul_Tensor, Multiplication, InMultiplication>(backends());
  cure->add<div_Tensor, Division, InDivision>(backends());
  cure->add<neg, Negation, InNegation>(backends());
  cure->add<masked_fill_Scalar, MaskedFill, InMaskedFill>(backends());
  return cure;
}

} // namespace

} // namespace owned

std::unique_ptr<Cure> cure_owned_gradients() {
  return owned::install();
}

} // namespace noalias
