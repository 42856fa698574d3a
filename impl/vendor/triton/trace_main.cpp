// Prints FlashAttention-2 forward, line by line, with the sizes of the seed's text.
#include <fmt/format.h>

#include "impl/vendor/triton/line_by_line.h"

int main() {
  using namespace attest::vendor::triton;
  const TutorialSizes s;
  const Matrix Q = uniform_matrix(s.N, s.d, 1), K = uniform_matrix(s.N, s.d, 2),
               V = uniform_matrix(s.N, s.d, 3);
  fmt::print("{}", to_text(forward_line_by_line(Q, K, V, s.Br, s.Bc)));
}
