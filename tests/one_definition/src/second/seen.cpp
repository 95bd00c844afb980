#include "reading.hpp"
namespace tsdiag {
namespace {
struct Hidden {};
}  // namespace
struct Seen {
    Hidden* none = nullptr;
};
}  // namespace tsdiag
