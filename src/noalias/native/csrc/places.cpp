#include "places.h"

#include <c10/util/hash.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <unordered_map>
#include <vector>

namespace noalias {

namespace {

// Note [Whose line]
//
// A step is told about by lines of the user's: the innermost frame outside PyTorch,
// installed packages and noalias. Where there is none (a program that is itself an
// installed package) it is the innermost frame of an installed package.
//
// A frame is known by its code object and the position in it; turning the position
// into a line is left for the few that are asked about. Code objects are held, so
// that an address means one of them. A program that compiles new code all the time
// must not make this grow for ever: beyond the bound its lines are unknown.
enum class Whose : uint8_t { kEngine, kLibrary, kUser };

constexpr size_t kMostCodes = size_t{1} << 16;
constexpr size_t kMostPlaces = size_t{1} << 17;

struct CodePosition {
  PyCodeObject* code;
  int position;
  bool operator==(const CodePosition& other) const {
    return code == other.code && position == other.position;
  }
};

struct HashCodePosition {
  size_t operator()(const CodePosition& at) const {
    return c10::get_hash(static_cast<const void*>(at.code), at.position);
  }
};

// Guarded by the interpreter lock.
struct KnownPlaces {
  pybind11::object whose;
  std::unordered_map<PyCodeObject*, Whose> codes; // the keys are owned
  std::vector<CodePosition> places{{nullptr, 0}};
  std::unordered_map<CodePosition, Place, HashCodePosition> numbers;
};

KnownPlaces& known_places() {
  // Never destroyed: the interpreter may be gone before this library.
  static auto& known = *std::make_unique<KnownPlaces>().release();
  return known;
}

Whose whose_code(PyCodeObject* code) {
  auto& known = known_places();
  const auto found = known.codes.find(code);
  if (found != known.codes.end()) {
    return found->second;
  }
  if (!known.whose || known.codes.size() >= kMostCodes) {
    return Whose::kEngine;
  }
  const auto answer = known.whose(pybind11::handle(code->co_filename));
  const auto whose = static_cast<Whose>(answer.cast<int>());
  Py_INCREF(code);
  known.codes.emplace(code, whose);
  return whose;
}

Place number_of(const CodePosition& at) {
  auto& known = known_places();
  const auto found = known.numbers.find(at);
  if (found != known.numbers.end()) {
    return found->second;
  }
  if (known.places.size() >= kMostPlaces) {
    return 0;
  }
  const auto place = static_cast<Place>(known.places.size());
  known.places.push_back(at);
  known.numbers.emplace(at, place);
  return place;
}

int position_in(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return PyFrame_GetLineNumber(frame);
#endif
}

int line_of(const CodePosition& at) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyCode_Addr2Line(at.code, at.position);
#else
  return at.position;
#endif
}

} // namespace

Place current_place(PyThreadState* thread) {
  if (thread == nullptr) {
    return 0;
  }
  auto frame = pybind11::reinterpret_steal<pybind11::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(thread)));
  Place library = 0;
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = pybind11::reinterpret_steal<pybind11::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    auto* raw_code = reinterpret_cast<PyCodeObject*>(code.ptr());
    const Whose whose = whose_code(raw_code);
    if (whose == Whose::kUser) {
      return number_of({raw_code, position_in(raw)});
    }
    if (whose == Whose::kLibrary && library == 0) {
      library = number_of({raw_code, position_in(raw)});
    }
    frame = pybind11::reinterpret_steal<pybind11::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return library;
}

std::pair<std::string, int> file_and_line(Place place) {
  const auto& known = known_places();
  if (place == 0 || place >= known.places.size()) {
    return {"", 0};
  }
  const CodePosition& at = known.places[place];
  return {
      pybind11::handle(at.code->co_filename).cast<std::string>(), line_of(at)};
}

void set_whose(PyObject* whose) {
  known_places().whose =
      pybind11::reinterpret_borrow<pybind11::object>(whose);
}

void forget_places() {
  auto& known = known_places();
  for (const auto& [code, whose] : known.codes) {
    Py_DECREF(code);
  }
  known.codes.clear();
  known.numbers.clear();
  known.places.assign(1, {nullptr, 0});
}

} // namespace noalias
