#pragma once
#include <string>
namespace tsdiag {
class Reading {
    std::string text_;
};
}  // namespace tsdiag
