#include "in_place_unboxed.h"

#include "in_place_call.h"
#include "stock_kernel.h"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/zero_ops.h>

#include <optional>
#include <type_traits>

namespace noalias {

namespace {

template <typename T>
bool asks_for_gradient(const T& argument) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return argument.defined() && argument.requires_grad();
  } else if constexpr (std::is_same_v<T, std::optional<Tensor>>) {
    return argument.has_value() && asks_for_gradient(*argument);
  } else {
    // Numbers, generators, and index_put's list of indices.
    static_assert(
        !std::is_same_v<T, at::TensorList> &&
        !std::is_same_v<T, at::ITensorListRef>);
    return false;
  }
}

template <typename Op, typename Schema = typename Op::schema>
struct Unboxed;

template <typename Op, typename... Rest>
struct Unboxed<Op, Tensor&(Tensor&, Rest...)> {
  static Tensor& kernel(
      c10::DispatchKeySet keys,
      Tensor& written,
      Rest... rest) {
    const auto any_requires_grad = [&] {
      return asks_for_gradient(written) || (... || asks_for_gradient(rest));
    };
    const auto* at_stake = view_at_stake(written, keys, any_requires_grad);
    if (!may_matter(written, at_stake, keys)) {
      return StockKernel<Op>::call(keys, written, rest...);
    }
    static const c10::OperatorHandle op = StockKernel<Op>::handle();
    const auto stock = [&] { StockKernel<Op>::call(keys, written, rest...); };
    InPlaceCall{op, keys, any_requires_grad, stock}.on(written, at_stake);
    return written;
  }
};

} // namespace

std::unordered_set<std::string> guard_without_boxing(Overrides& overrides) {
  std::unordered_set<std::string> guarded;
  const auto guard = [&](auto typed) {
    using Op = decltype(typed);
    const auto op = StockKernel<Op>::handle();
    if (StockKernel<Op>::is_reachable(op)) {
      overrides.add_function(op, TORCH_FN(Unboxed<Op>::kernel));
      guarded.insert(c10::toString(op.operator_name()));
    }
  };
  const auto guard_all = [&](auto... typed) { (guard(typed), ...); };
  using namespace at::_ops;
  guard_all(
      abs_{},
      add__Scalar{},
      add__Tensor{},
      addcdiv_{},
      addcmul_{},
      addmm_{},
      baddbmm_{},
      clamp_{},
      clamp_max_{},
      clamp_min_{},
      copy_{},
      div__Scalar{},
      div__Tensor{},
      elu_{},
      exp_{},
      fill__Scalar{},
      fill__Tensor{},
      hardtanh_{},
      index_add_{},
      index_put_{},
      leaky_relu_{},
      lerp__Scalar{},
      lerp__Tensor{},
      masked_fill__Scalar{},
      masked_fill__Tensor{},
      mul__Scalar{},
      mul__Tensor{},
      neg_{},
      pow__Scalar{},
      relu_{},
      scatter__src{},
      scatter__value{},
      scatter_add_{},
      sigmoid_{},
      silu_{},
      sqrt_{},
      sub__Scalar{},
      sub__Tensor{},
      tanh_{},
      zero_{});
  return guarded;
}

} // namespace noalias
