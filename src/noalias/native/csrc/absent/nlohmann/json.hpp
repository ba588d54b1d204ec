// PyTorch's functorch headers (ATen/functorch/Interpreter.h, 2.9 to 2.15) include a
// JSON library that PyTorch does not install. The core needs functorch's wrappers,
// not their serialization: what the headers name is declared here and never
// defined, so that a call would fail to link.
#pragma once

#include <string>

namespace nlohmann {

class json {
 public:
  json() = default;
  template <typename T>
  explicit json(const T& value);
  template <typename T>
  T get() const;
  std::string dump() const;
  static json parse(const std::string& text);
};

} // namespace nlohmann
