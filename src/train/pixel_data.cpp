#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "cifar.hpp"
#include "token_set.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/pictures.hpp"
#include "tsdiag/text.hpp"

/// Images of the Long-Range Arena as sequences of grey values, row by row: CIFAR-10 and Pathfinder.
namespace tsdiag::training::data_list {
namespace {

namespace fs = std::filesystem;

/// Two of the images' paths, the ends of which are marked: do the marks lie on one path?  Drawn as
/// by the released generator of Pathfinder [PATHFINDER] with the arena's settings for 32 x 32
/// pixels [LRA]; for other sizes distances in proportion, and paddles to the area.  Lines are
/// placed and antialiased in the plane, not on a grid of pixels.
class Pathfinder {
  public:
    Pathfinder(Index side, Rng& rng) : side_(double(side)), rng_(rng) {
        const double share = side_ / 32;
        paddles_ = std::max<Index>(Index(14 * share * share), 2);  // as many for their area
        seed_distance_ = 7 * share;
        distractor_paddles_ = std::max<Index>(paddles_ / 3, 1);
        distractors_ = Index(std::lround(20 * share * share / double(distractor_paddles_)));
    }

    /// Grey values of side x side pixels, and whether the marks lie on one path.
    std::pair<std::string, bool> draw() {
        while (!draw_targets()) lines_.clear();
        for (Index i = 0; i < distractors_; ++i) draw_distractor();
        const auto first = std::size_t(rng_.below(2));
        const bool same = rng_.below(2) == 1;
        const Point marks[] = {tails_[first], heads_[same ? first : 1 - first]};
        return {pixels(marks), same};
    }

  private:
    struct Point {
        double x, y;
        Point moved(double angle, double by) const {
            return {x + by * std::cos(angle), y + by * std::sin(angle)};
        }
    };
    struct Line {
        Point from, to;
    };
    /// A path that grows: where its next paddle turns, and its direction so far.
    struct Path {
        Point pivot;
        double angle;
        std::vector<Line> lines = {};
    };

    static constexpr double length = 2, margin = 1, thickness = 0.5, mark_radius = 1.5,
                            continuity = 1, contrast = 1.5, padding = 1;
    static constexpr int paddle_trials = 3, distractor_trials = 5;

    static double distance(Point p, const Line& l) {
        const double dx = l.to.x - l.from.x, dy = l.to.y - l.from.y;
        const double along = std::clamp(
            ((p.x - l.from.x) * dx + (p.y - l.from.y) * dy) / (dx * dx + dy * dy), 0.0, 1.0);
        return std::hypot(p.x - l.from.x - along * dx, p.y - l.from.y - along * dy);
    }
    static bool cross(const Line& a, const Line& b) {
        const auto side = [](const Line& l, Point p) {
            return (l.to.x - l.from.x) * (p.y - l.from.y) - (l.to.y - l.from.y) * (p.x - l.from.x);
        };
        return side(a, b.from) * side(a, b.to) < 0 && side(b, a.from) * side(b, a.to) < 0;
    }
    static double distance(const Line& a, const Line& b) {
        if (cross(a, b)) return 0;
        return std::min(
            {distance(a.from, b), distance(a.to, b), distance(b.from, a), distance(b.to, a)});
    }

    bool inside(Point p) const {
        return std::min(p.x, p.y) >= padding && std::max(p.x, p.y) <= side_ - padding;
    }
    /// Whether all lines but the path's own last one are at least so far away.
    template <class Shape>
    bool apart(const Shape& shape, double least, const Path& path, const Path* other) const {
        const auto far = [&](const Line& l) { return distance(shape, l) >= least; };
        const std::size_t own = path.lines.empty() ? 0 : path.lines.size() - 1;
        return std::ranges::all_of(lines_, far) &&
               std::all_of(path.lines.begin(), path.lines.begin() + std::ptrdiff_t(own), far) &&
               (!other || std::ranges::all_of(other->lines, far));
    }
    /// Whether the margins of a paddle cover no pixel that others cover.
    bool is_free(const Line& line, const Path& path, const Path* other) const {
        return inside(line.from) && inside(line.to) && apart(line, 1.5 * margin, path, other);
    }

    Path seed(Point tail) {
        const double angle = 2 * std::numbers::pi * rng_.uniform();
        return {tail.moved(angle, -margin), angle};
    }
    bool begin(Path& path, const Path* other) {
        const Line line{path.pivot.moved(path.angle, margin),
                        path.pivot.moved(path.angle, margin + length)};
        if (!is_free(line, path, other)) return false;
        accept(path, line);
        return true;
    }
    static void accept(Path& path, const Line& line) {
        path.lines.push_back(line);
        path.pivot = path.pivot.moved(path.angle, length + 2 * margin);
    }

    /// The next paddle: its head one of the pixels around the pivot that are free, with probability
    /// cos^2 of the turn.
    bool extend(Path& path, const Path* other) {
        const auto count = std::size_t(std::ceil(2 * std::numbers::pi * (length + margin)));
        auto sums = std::vector<double>(count);
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const double turn = turn_of(i, count);
            const Point head = path.pivot.moved(path.angle + turn, margin + length);
            if (inside(head) && apart(head, 2 * margin, path, other)) {
                const double share = std::cos(std::min(std::abs(turn) * continuity, right_angle));
                sum += share * share;
            }
            sums[i] = sum;
        }
        if (sum < 1e-4) return false;
        for (int trial = 0; trial < paddle_trials; ++trial) {
            const auto at = std::ranges::upper_bound(sums, sum * rng_.uniform()) - sums.begin();
            Path turned = path;
            turned.angle += turn_of(std::min(std::size_t(at), count - 1), count);
            const Line line{turned.pivot.moved(turned.angle, margin),
                            turned.pivot.moved(turned.angle, margin + length)};
            if (!is_free(line, turned, other)) continue;
            accept(turned, line);
            path = std::move(turned);
            return true;
        }
        return false;
    }
    static constexpr double right_angle = std::numbers::pi / 2;
    static double turn_of(std::size_t i, std::size_t count) {
        return std::numbers::pi * (2 * (double(i) + 0.5) / double(count) - 1);
    }

    bool draw_targets() {
        const double room = side_ - 4 * seed_distance_;
        const Point tail{2 * seed_distance_ + room * rng_.uniform(),
                         2 * seed_distance_ + room * rng_.uniform()};
        Path one = seed(tail);
        if (!begin(one, nullptr)) return false;
        const Point other_tail = tail.moved(2 * std::numbers::pi * rng_.uniform(), seed_distance_);
        Path two = seed(other_tail);
        if (!begin(two, &one)) return false;
        for (Index i = 1; i < paddles_; ++i)
            if (!extend(one, &two) || !extend(two, &one)) return false;
        for (const Path* path : {&one, &two})
            lines_.insert(lines_.end(), path->lines.begin(), path->lines.end());
        tails_ = {one.lines.front().from, two.lines.front().from};
        heads_ = {one.lines.back().to, two.lines.back().to};
        return true;
    }

    void draw_distractor() {
        for (int trial = 0; trial < distractor_trials; ++trial) {
            Path path = seed({side_ * rng_.uniform(), side_ * rng_.uniform()});
            bool good = begin(path, nullptr);
            for (Index i = 1; good && i < distractor_paddles_; ++i) good = extend(path, nullptr);
            if (!good) continue;
            lines_.insert(lines_.end(), path.lines.begin(), path.lines.end());
            return;
        }
    }

    std::string pixels(std::span<const Point> marks) const {
        constexpr int fine = 4;  // points of a pixel on each side
        const auto n = std::size_t(side_);
        std::string out(n * n, '\0');
        for (std::size_t i = 0; i < out.size(); ++i) {
            int on_line = 0, on_mark = 0;
            const Point centre{double(i % n) + 0.5, double(i / n) + 0.5};
            std::vector<const Line*> near;
            for (const Line& line : lines_)
                if (distance(centre, line) < 1.5) near.push_back(&line);
            for (int k = 0; k < fine * fine; ++k) {
                const Point p{double(i % n) + (k % fine + 0.5) / fine,
                              double(i / n) + (k / fine + 0.5) / fine};
                on_line += std::ranges::any_of(
                    near, [&](const Line* line) { return distance(p, *line) <= thickness / 2; });
                on_mark += std::ranges::any_of(marks, [&](Point mark) {
                    return std::hypot(p.x - mark.x, p.y - mark.y) <= mark_radius;
                });
            }
            const double grey = std::max(contrast * on_line, double(on_mark)) / (fine * fine);
            out[i] = char(std::lround(255 * std::min(grey, 1.0)));
        }
        return out;
    }

    double side_;
    Rng& rng_;
    Index paddles_, distractor_paddles_, distractors_;
    double seed_distance_;
    std::vector<Line> lines_;
    std::array<Point, 2> tails_ = {}, heads_ = {};
};

class DrawnPathfinder final : public DrawnData {
  public:
    std::string description() const override {
        return "paths with two marked ends, generated by the rules of Pathfinder";
    }
    Index vocabulary() const override { return 256; }
    Index classes() const override { return 2; }
    void require(const Fit& fit) const override {
        require_labelled_tokens(fit, vocabulary());
        const Index side = side_of(fit);
        if (side * side != fit.tokens || side < least || side > most)
            throw UsageError(
                fmt::format("--tokens {}: an image has s x s pixels, one token per pixel, with s "
                            "from {} to {}.",
                            fit.tokens, least, most));
    }

  private:
    static constexpr Index least = 12, most = 128;
    static Index side_of(const Fit& fit) { return Index(std::lround(std::sqrt(fit.tokens))); }
    Example drawn(const Fit& fit, const Rng&, Rng rng) const override {
        const auto [pixels, same] = Pathfinder(side_of(fit), rng).draw();
        return labelled(cropped(fit, pixels, true), same ? 1 : 0);
    }
};

/// The lines of metadata: folder, file, number, label, and settings.
void read_metadata(const fs::path& folder, const fs::path& file, std::vector<fs::path>& images,
                   std::vector<Index>& labels) {
    const std::string text = file_text(file, "lines of text on images");
    for (Lines lines(text); lines.next();) {
        const std::vector<std::string> words = split(lines.line(), ' ');
        if (words.size() < 4 || (words[3] != "0" && words[3] != "1"))
            throw FormatError(
                fmt::format("{}: line {}: is '{}', expected folder, file, number and "
                            "a label of 0 or 1.",
                            file.string(), lines.number(), visible(shortened(lines.line(), 60))));
        images.push_back(folder / words[0] / words[1]);
        labels.push_back(words[3] == "1");
    }
}

/// "7.npy" before "10.npy".
bool by_number(const fs::path& a, const fs::path& b) {
    const std::string x = a.filename().string(), y = b.filename().string();
    return std::pair(x.size(), x) < std::pair(y.size(), y);
}

/// The images in an order that is always the same, the last tenth held out, as by the arena.
std::unique_ptr<Data> pathfinder_of_files(const fs::path& folder) {
    std::vector<fs::path> files, images;
    std::vector<Index> labels;
    std::error_code failed;
    for (fs::directory_iterator at(folder / "metadata", failed), end; !failed && at != end;
         at.increment(failed))
        if (at->path().extension() == ".npy") files.push_back(at->path());
    if (failed || files.empty())
        throw FormatError(fmt::format(
            "{}: contains no metadata/*.npy, expected those of Pathfinder.", folder.string()));
    std::ranges::sort(files, by_number);
    for (const fs::path& file : files) read_metadata(folder, file, images, labels);

    TokenSet set{.name = folder.string()};
    std::vector<TokenSet::Sample> samples;
    for (const Index i : shuffled(Rng(0), std::ssize(images))) {
        const fs::path& file = images[std::size_t(i)];
        std::error_code none;
        if (fs::is_regular_file(file, none) && fs::file_size(file, none) == 0)
            continue;  // the published set has empty files
        const Picture picture = read_picture(file, 1);
        const Index size = picture.height * picture.width;
        if (set.length > 0 && size != set.length)
            throw FormatError(fmt::format("{}: has {} pixels, expected {} as in the other images.",
                                          file.string(), size, set.length));
        set.length = size;
        samples.push_back({.text = std::ssize(set.texts), .label = labels[std::size_t(i)]});
        set.texts.emplace_back(picture.pixels.begin(), picture.pixels.end());
    }
    const auto kept = std::ptrdiff_t(samples.size()) * 9 / 10;
    set.training.assign(samples.begin(), samples.begin() + kept);
    set.held_out.assign(samples.begin() + kept, samples.end());
    return token_data(std::move(set));
}

void add_grey(const Images& images, TokenSet& set, std::vector<TokenSet::Sample>& samples) {
    constexpr std::size_t area = 32 * 32;
    for (std::size_t i = 0; i < images.labels.size(); ++i) {
        const std::uint8_t* red = images.pixels.data() + 3 * area * i;
        std::string grey;
        for (std::size_t k = 0; k < area; ++k)  // as TensorFlow's rgb_to_grayscale
            grey +=
                char(int(255.5 / 255 *
                         (0.2989 * red[k] + 0.587 * red[area + k] + 0.114 * red[2 * area + k])));
        samples.push_back({.text = std::ssize(set.texts), .label = images.labels[i]});
        set.texts.push_back(std::move(grey));
    }
}

}  // namespace

extern const DataEntry pixels = {
    .kind = {.name = "pixels",
             .argument = "DIR",
             .samples = "CIFAR-10 as sequences of 1024 grey values, the Image task of [LRA]",
             .held_out = "`test_batch.bin`",
             .layout = "that of CIFAR-10",
             .labelled = true},
    .holds = nullptr,  // a folder of CIFAR-10 without a kind is one of images
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        TokenSet set{.name = r.argument, .classes = 10, .length = 32 * 32};
        const Cifar10 cifar = read_cifar10(r.argument);
        add_grey(cifar.training, set, set.training);
        add_grey(cifar.held_out, set, set.held_out);
        return token_data(std::move(set));
    }};

extern const DataEntry pathfinder = {
    .kind = {.name = "pathfinder",
             .argument = "[:DIR]",
             .samples =
                 "Pathfinder [PATHFINDER] as sequences of grey values: whether two marks are on "
                 "one path; generated by its rules if no folder is given, sqrt(n) pixels wide",
             .held_out = "a tenth, or drawn separately",
             .layout = "`metadata/*.npy`, lines of text with folder, file, number, label; the PNG "
                       "files that they name [LRA]",
             .labelled = true},
    .holds = [](const fs::path& folder) { return fs::is_directory(folder / "metadata"); },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        if (r.argument.empty()) return std::make_unique<DrawnPathfinder>();
        return pathfinder_of_files(r.argument);
    }};

}  // namespace tsdiag::training::data_list
