// A violation that tests/one_cast.cmake must detect.
#include <cstddef>

double half(int x) { return static_cast<double>(x) / 2; }
std::size_t size(int x) { return static_cast<std::size_t>(x); }
double twice(int x) { return 2 * double(x); }
