// Lines of the user's program, as small numbers.
#pragma once

#include <torch/csrc/python_headers.h>

#include <cstdint>
#include <string>
#include <utility>

namespace noalias {

// A line of Python; 0 where there is none. Valid until forget_places().
using Place = uint32_t;

// The line that `thread` is at: of the innermost frame that is the user's, or else
// of the innermost one of an installed library. See Note [Whose line]. The
// interpreter lock must be held, as for all of this file.
Place current_place(PyThreadState* thread);

// (file, line) of a place; ("", 0) for none.
std::pair<std::string, int> file_and_line(Place place);

// `whose` says of a file name whose code it holds: 0 for PyTorch, Python and
// noalias, 1 for an installed library, 2 for the user. Asked once for each code
// object.
void set_whose(PyObject* whose);

// Drops all places and the code objects they hold.
void forget_places();

} // namespace noalias
