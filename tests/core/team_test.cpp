#include "support/team.hpp"

#include <gmock/gmock.h>

#include "tsdiag/random.hpp"

namespace tsdiag::test {
namespace {

/// Vectors whose sum depends on the order of its terms.
std::vector<double> vector_of(int number, std::size_t size) {
    std::vector<double> out(size);
    Rng(std::uint64_t(number)).fill_normal(out, 0, number % 3 == 0 ? 1e8 : 1.0);
    return out;
}

TEST(TeamSum, HasTheBitsOfOneProcessForAnyNumberOfMembers) {
    constexpr int vectors = 11;
    for (const std::size_t size : {1U, 2U, 7U, 100U}) {
        TeamSum alone(nullptr, size);
        for (int i = 0; i < vectors; ++i) alone.add(vector_of(i, size));
        const std::vector<double> expected = alone.total();
        std::vector<double> backwards(size);
        for (int i = vectors; i-- > 0;)
            for (std::size_t j = 0; j < size; ++j) backwards[j] += vector_of(i, size)[j];
        if (size == 100) {
            EXPECT_NE(backwards, expected) << "the order does not matter here";
        }
        for (const int members : {1, 2, 3, 5, 16}) {
            Threads(members).run([&](const Team& team) {
                TeamSum sum(&team, size);
                for (int first = 0; first < vectors; first += members) {
                    const int here = std::min(members, vectors - first);
                    const bool idle = team.rank() >= here;
                    sum.add(idle ? std::vector<double>(size, 1e300)
                                 : vector_of(first + team.rank(), size),
                            here);
                }
                EXPECT_EQ(sum.total(), expected) << members << " members, " << size << " numbers";
            });
        }
    }
}

TEST(TeamBytes, GiveBackTheirValues) {
    const std::vector<double> values = {0.1, -0.0, 5e-324};
    EXPECT_EQ(values_of_bytes<double>(bytes_of_all(std::span<const double>(values))), values);
    EXPECT_TRUE(values_of_bytes<double>("").empty());
}

}  // namespace
}  // namespace tsdiag::test
