#include "recorder.hpp"

#include <unordered_map>

namespace tsdiag {
namespace {

// What an entry has.
constexpr std::uint64_t is_point = 1, has_value = 2, has_low = 4, has_high = 8, has_note = 16,
                        all_flags = 31;

/// The strings of a record, each written once.
class Interned {
  public:
    std::uint64_t operator()(std::string_view name) {
        const auto [at, is_new] = numbers_.try_emplace(name, all_.size());
        if (is_new) all_.push_back(name);
        return at->second;
    }
    const std::vector<std::string_view>& all() const { return all_; }

  private:
    std::unordered_map<std::string_view, std::size_t> numbers_;
    std::vector<std::string_view> all_;
};

std::string_view name_at(RecordReader& in, const std::vector<std::string_view>& names) {
    const std::uint64_t number = in.count();
    if (number >= names.size()) in.refuse("has a name without text");
    return names[std::size_t(number)];
}

}  // namespace

void Recorder::scalar(const Place& at, std::string_view metric, const Value& value) {
    entries_.push_back({at, std::string(metric), value});
}
void Recorder::point(const Place& at, std::string_view curve, double x, const Value& y) {
    entries_.push_back({at, std::string(curve), y, x, true});
}
void Recorder::matrix(Map map) { maps_.push_back(std::move(map)); }

void Recorder::Entry::replay(Sink& out) const {
    is_point ? out.point(at, name, x, value) : out.scalar(at, name, value);
}

void Recorder::replay(Sink& out) const {
    for (const Entry& entry : entries_) entry.replay(out);
    replay_maps(out);
}

void Recorder::replay(Sink& out, std::size_t segment) const {
    const std::size_t first = segment == 0 ? 0 : marks_[segment - 1];
    const std::size_t last = segment < marks_.size() ? marks_[segment] : entries_.size();
    for (std::size_t i = first; i < last; ++i) entries_[i].replay(out);
}

void Recorder::replay_maps(Sink& out) const {
    for (const Map& map : maps_) out.matrix(map);
}

void Recorder::append(const Recorder& later) {
    for (const std::size_t mark : later.marks_) marks_.push_back(entries_.size() + mark);
    entries_.insert(entries_.end(), later.entries_.begin(), later.entries_.end());
    maps_.insert(maps_.end(), later.maps_.begin(), later.maps_.end());
}

void Recorder::write(RecordWriter& out) const {
    Interned names;
    for (const Entry& e : entries_)
        for (const std::string* name : {&e.name, &e.at.stage, &e.at.tensor, &e.value.note})
            names(*name);
    for (const Map& map : maps_)
        for (const std::string* name : {&map.name, &map.at.stage, &map.at.tensor}) names(*name);
    out.count(names.all().size());
    for (const std::string_view name : names.all()) out.text(name);
    const auto place = [&](const Place& at) {
        for (const Index i : {at.step, at.layer, at.head}) out.index(i);
        for (const std::string* name : {&at.stage, &at.tensor}) out.count(names(*name));
    };
    out.count(entries_.size());
    for (const Entry& e : entries_) {
        const Value& v = e.value;
        std::uint64_t flags = 0;
        for (const auto& [has, flag] : {std::pair(e.is_point, is_point),
                                        {v.value.has_value(), has_value},
                                        {v.low.has_value(), has_low},
                                        {v.high.has_value(), has_high},
                                        {!v.note.empty(), has_note}})
            if (has) flags |= flag;
        out.count(flags);
        out.count(names(e.name));
        place(e.at);
        if (e.is_point) out.real(e.x);
        for (const auto& number : {v.value, v.low, v.high})
            if (number) out.real(*number);
        if (!v.note.empty()) out.count(names(v.note));
    }
    out.count(maps_.size());
    for (const Map& map : maps_) {
        out.count(names(map.name));
        place(map.at);
        out.index(map.rows);
        out.index(map.cols);
        out.reals(map.values);
    }
    out.count(marks_.size());
    for (const std::size_t mark : marks_) out.count(mark);
}

namespace {

Place read_place(RecordReader& in, const std::vector<std::string_view>& names) {
    Place at;
    at.step = in.index();
    at.layer = in.index();
    at.head = in.index();
    at.stage = name_at(in, names);
    at.tensor = name_at(in, names);
    return at;
}

}  // namespace

Recorder::Entry Recorder::read_entry(RecordReader& in, const std::vector<std::string_view>& names) {
    const std::uint64_t flags = in.count();
    if ((flags & ~all_flags) != 0) in.refuse("has an unknown kind of number");
    Entry e;
    e.is_point = (flags & is_point) != 0;
    e.name = name_at(in, names);
    e.at = read_place(in, names);
    if (e.is_point) e.x = in.real();
    if ((flags & has_value) != 0) e.value.value = in.real();
    if ((flags & has_low) != 0) e.value.low = in.real();
    if ((flags & has_high) != 0) e.value.high = in.real();
    if ((flags & has_note) != 0) e.value.note = name_at(in, names);
    return e;
}

Recorder Recorder::read(RecordReader& in) {
    auto names = std::vector<std::string_view>(in.length());
    for (std::string_view& name : names) name = in.view();
    constexpr std::size_t least_entry = 7, least_map = 9;  // bytes
    Recorder out;
    const std::size_t count = in.length(least_entry);
    out.entries_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) out.entries_.push_back(read_entry(in, names));
    const std::size_t maps = in.length(least_map);
    for (std::size_t i = 0; i < maps; ++i) {
        Map map;
        map.name = name_at(in, names);
        map.at = read_place(in, names);
        map.rows = in.index();
        map.cols = in.index();
        map.values = in.reals();
        const Index values = std::ssize(map.values);
        const bool fits = map.rows == 0 || map.cols == 0 ? values == 0
                                                         : map.rows > 0 && values % map.rows == 0 &&
                                                               values / map.rows == map.cols;
        if (!fits) in.refuse("has a map of another size than its own");
        out.maps_.push_back(std::move(map));
    }
    out.marks_.resize(in.length());
    std::size_t last = 0;
    for (std::size_t& mark : out.marks_) {
        mark = std::size_t(in.count());
        if (mark < last || mark > out.entries_.size()) in.refuse("has segments out of order");
        last = mark;
    }
    return out;
}

}  // namespace tsdiag
