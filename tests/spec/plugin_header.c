/* attest_plugin.h compiles as C11, on its own and twice. */
#include "spec/attest_plugin.h"

#include "spec/attest_plugin.h"

_Static_assert(sizeof(attest_tensor) == 88, "no hidden padding");
_Static_assert(offsetof(attest_plugin, struct_size) == 0, "each struct begins with its size");
_Static_assert(offsetof(attest_kernel, struct_size) == 0, "each struct begins with its size");
_Static_assert(offsetof(attest_problem, struct_size) == 0, "each struct begins with its size");

size_t c_size_of_problem(void);
size_t c_size_of_problem(void) { return sizeof(attest_problem); }
size_t c_size_of_tensor(void);
size_t c_size_of_tensor(void) { return sizeof(attest_tensor); }
size_t c_size_of_kernel(void);
size_t c_size_of_kernel(void) { return sizeof(attest_kernel); }
