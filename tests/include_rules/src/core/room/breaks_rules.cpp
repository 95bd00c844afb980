// Breaks a rule on purpose, below a folder.
#include "beside/own.hpp"
