#include "cures.h"

#include "in_place.h"
#include "override.h"
#include "owned_gradient.h"
#include "route_linear.h"
#include "sibling_views.h"

#include <c10/util/Exception.h>

#include <map>
#include <memory>
#include <mutex>

namespace noalias {

namespace {

using Install = std::unique_ptr<Cure> (*)();

const std::map<std::string, Install>& cures() {
  static const std::map<std::string, Install> all = {
      {"hidden_base", &cure_hidden_bases},
      {"linear", &cure_linear},
      {"slice_update", &cure_slice_updates},
      {"sibling_views", &cure_sibling_views},
      {"owned_gradient", &cure_owned_gradients},
  };
  return all;
}

// Guarded by its own lock; dropped entries give PyTorch's kernels back.
struct Active {
  std::mutex lock;
  std::map<std::string, std::unique_ptr<Cure>> overrides;
};

Active& active() {
  static Active instance;
  return instance;
}

} // namespace

std::vector<std::string> known_cures() {
  std::vector<std::string> names;
  for (const auto& [name, install] : cures()) {
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> active_cures() {
  std::lock_guard<std::mutex> guard(active().lock);
  std::vector<std::string> names;
  for (const auto& [name, overrides] : active().overrides) {
    names.push_back(name);
  }
  return names;
}

void enable_cure(const std::string& name) {
  const auto found = cures().find(name);
  TORCH_CHECK_VALUE(found != cures().end(), "noalias: no cure named '", name, "'");
  std::lock_guard<std::mutex> guard(active().lock);
  auto& slot = active().overrides[name];
  if (slot == nullptr) {
    slot = found->second();
  }
}

void disable_cure(const std::string& name) {
  TORCH_CHECK_VALUE(
      cures().count(name) != 0, "noalias: no cure named '", name, "'");
  std::lock_guard<std::mutex> guard(active().lock);
  active().overrides.erase(name);
}

} // namespace noalias
