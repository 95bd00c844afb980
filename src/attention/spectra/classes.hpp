#pragma once
#include <vector>

#include "tsdiag/tensor.hpp"

/// The directed graph of the non-zero entries of a matrix: i -> j where P_ij != 0.
namespace tsdiag::classes {

class Graph {
  public:
    /// Of one head in host memory.
    explicit Graph(const View& p);
    bool edge(Index i, Index j) const { return edge_[std::size_t(i * n_ + j)] != 0; }
    Index size() const { return n_; }

  private:
    Index n_;
    std::vector<char> edge_;
};

/// Whether some entry is exactly 0: else the graph is complete.
bool has_zero(const View& p);

/// A class: tokens that reach each other.  P is block triangular over the classes, so its spectrum
/// is the union of theirs; all classes of one token: P is a permuted triangular matrix.
struct Class {
    std::vector<Index> tokens;  ///< ascending
    bool closed = true;         ///< no edge leaves it
};
/// Cost O(n^2).  Tarjan's algorithm.
std::vector<Class> communicating(const Graph& graph);

/// Greatest common divisor of the lengths of all cycles of a strongly connected graph.
Index period(const Graph& graph);

}  // namespace tsdiag::classes
