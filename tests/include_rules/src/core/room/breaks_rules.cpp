// Breaks a rule on purpose, in a subfolder.
#include "beside/own.hpp"
