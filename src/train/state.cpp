#include "state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <sstream>
#include <vector>

#include "tsdiag/error.hpp"
#include "tsdiag/fields.hpp"
#include "tsdiag/parallel.hpp"

namespace tsdiag::training {
namespace {

namespace fs = std::filesystem;

/// Host copies, with arrays that refer to them.
class Arrays {
  public:
    void add(std::string name, const Tensor& t) {
        values_.push_back(t.to_host<float>());
        arrays_.push_back({std::move(name), {t.batch(), t.rows(), t.cols()}, values_.back(), {}});
    }
    std::span<const NamedArray> all() const { return arrays_; }

  private:
    std::vector<std::vector<float>> values_;  // moving a vector does not move its elements
    std::vector<NamedArray> arrays_;
};

struct Bytes {
    std::string name;
    std::vector<Index> shape;
    std::span<const std::byte> bytes;
};

/// "NAME SHAPE DIGEST", a line per tensor sorted by name; each is digested by one thread.
std::string lines_of(std::vector<Bytes> tensors) {
    std::ranges::sort(tensors, {}, &Bytes::name);
    std::vector<std::string> lines(tensors.size());
    in_parallel(std::ssize(tensors), [&](std::int64_t k) {
        const auto i = std::size_t(k);
        const Bytes& t = tensors[i];
        Sha256 digest;
        digest.add({reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()});
        lines[i] = fmt::format("{} {} {}\n", t.name, fmt::join(t.shape, "x"), digest.hex());
    });
    return std::accumulate(lines.begin(), lines.end(), std::string());
}

struct Mark {
    std::uint64_t bytes = 0;
    std::string digest = {};
};

void fields(auto& io, Is<Mark> auto& mark) {
    io.key("bytes", mark.bytes).key("sha256", mark.digest);
}

Json json_of(const LogMarks& marks) {
    Json out;
    for (const auto& [name, mark] : marks)
        out.set(name, fields_json(Mark{*mark.grows, mark.digest}));
    return out;
}

LogMarks marks_of(const Json& json, const fs::path& file) {
    LogMarks out;
    for (const char* name : Log::files()) {
        const auto mark =
            read_fields<Mark>(json[name], fmt::format("{} ({})", file.string(), name));
        out[name] = {mark.digest, mark.bytes};
    }
    return out;
}

/// The metadata of the file: `training`, `logs` and `measured` are JSON, `tensors` lines; earlier
/// versions wrote no `measured`.
struct Metadata {
    std::string training = {}, logs = {}, tensors = {}, measured = {}, sha256 = {};

    std::string digest() const {
        return tsdiag::sha256(training + "\n" + logs + "\n" + tensors +
                              (measured.empty() ? "" : "\n" + measured));
    }
};

void fields(auto& io, Is<Metadata> auto& said) {
    io.key("training", said.training).key("logs", said.logs).key("tensors", said.tensors);
    io.some("measured", said.measured).key("sha256", said.sha256);
}

std::set<std::string> split_lines(const std::string& text) {
    std::set<std::string> out;
    std::istringstream in(text);
    for (std::string one; std::getline(in, one);) out.insert(one);
    return out;
}

/// The tensor of the first line that differs.
std::string first_difference(const std::string& then, const std::string& now) {
    const std::set<std::string> a = split_lines(then), b = split_lines(now);
    std::vector<std::string> differing;
    std::ranges::set_difference(a, b, std::back_inserter(differing));
    if (differing.empty()) std::ranges::set_difference(b, a, std::back_inserter(differing));
    return differing.empty() ? "" : differing.front().substr(0, differing.front().find(' '));
}

}  // namespace

void write_state(const fs::path& file, const Parameters& parameters, const Optimiser& optimiser,
                 const StateNotes& notes) {
    Arrays arrays;
    for (const auto& [name, value] : parameters.all()) arrays.add("parameter." + name, value);
    for (const auto& [name, state] : optimiser.states()) {
        arrays.add("m." + name, state.m);
        arrays.add("v." + name, state.v);
    }
    std::vector<Bytes> tensors;
    for (const NamedArray& a : arrays.all())
        tensors.push_back({a.name, a.shape, std::as_bytes(a.f32)});
    Metadata said{.training = notes.identity.json().dump(),
                  .logs = json_of(notes.logs).dump(),
                  .tensors = lines_of(std::move(tensors))};
    if (!notes.measured.date.empty()) said.measured = notes.measured.json().dump();
    said.sha256 = said.digest();
    write_safetensors(file, arrays.all(), fields_json(said));
}

State::State(const fs::path& file) : file_(file), state_(open_checkpoint(file)) {
    const auto said = read_fields<Metadata>(state_->metadata(), file.string());
    if (said.digest() != said.sha256)
        throw FormatError(fmt::format("{}: is damaged (its notes).", file.string()));
    std::vector<Bytes> tensors;
    for (const std::string& name : state_->names()) {
        const RawTensor raw = state_->tensor(name);
        if (raw.dtype != DType::f32 || !as_is<float>(raw))
            throw FormatError(fmt::format("{}: '{}' is {}, expected float32.", file.string(), name,
                                          raw.dtype_name));
        tensors.push_back({name, raw.shape, std::as_bytes(*as_is<float>(raw))});
    }
    if (const std::string found = lines_of(std::move(tensors)); found != said.tensors)
        throw FormatError(fmt::format("{}: is damaged ('{}' is not what was written).",
                                      file.string(), first_difference(said.tensors, found)));
    notes_.identity =
        RunRecord::Training::of(Json::parse(said.training, file.string()), file.string());
    notes_.logs = marks_of(Json::parse(said.logs, file.string()), file);
    if (!said.measured.empty())
        notes_.measured =
            RunRecord::Measured::of(Json::parse(said.measured, file.string()), file.string());
}

void State::restore(Parameters& parameters, Optimiser& optimiser) const {
    const auto read = [&](const std::string& name, const Tensor& like) {
        const Shape shape = like.shape();
        if (!state_->has(name) ||
            state_->tensor(name).shape != std::vector<Index>{shape.batch, shape.rows, shape.cols})
            throw FormatError(fmt::format("{}: has no '{}' of {} x {} x {}.", file_.string(), name,
                                          shape.batch, shape.rows, shape.cols));
        return Tensor::from_host(like.backend(), shape, *as_is<float>(state_->tensor(name)),
                                 like.type());
    };
    for (const std::string& name : parameters.names()) {
        const Tensor like = parameters.get(name);
        parameters.set(name, read("parameter." + name, like));
        if (state_->has("m." + name))
            optimiser.restore(name, {read("m." + name, like), read("v." + name, like)});
    }
}

}  // namespace tsdiag::training
