#include "runtime/engine/verify/rank_record.h"

#include <cstring>
#include <type_traits>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

template <class T>
void put(std::string& bytes, const T* data, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto n = static_cast<uint64_t>(count);
  bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
  bytes.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

template <class T>
void put(std::string& bytes, const std::vector<T>& list) {
  put(bytes, list.data(), list.size());
}

// Calls f for each list of a record, in the order in which they travel.
template <class Record, class F>
void for_lists(Record& record, const F& f) {
  f(record.named);
  f(record.issues);
  f(record.values);
  f(record.pieces);
  f(record.floats);
  f(record.steps);
  f(record.terms);
}

// Takes lists from the beginning of bytes.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  std::vector<T> list() {
    uint64_t count = 0;
    take(&count, sizeof count);
    if (count > rest_.size() / sizeof(T)) fail_run("a rank's record is cut short");
    std::vector<T> values(count);
    take(values.data(), count * sizeof(T));
    return values;
  }
  std::string text() {
    const std::vector<char> characters = list<char>();
    return {characters.begin(), characters.end()};
  }

 private:
  void take(void* to, size_t bytes) {
    if (bytes > rest_.size()) fail_run("a rank's record is cut short");
    if (bytes > 0) std::memcpy(to, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }

  std::string_view rest_;
};

}  // namespace

int32_t RankRecord::add_name(const std::string& text, BufferRole role, int32_t copy_of) {
  const auto index = static_cast<int32_t>(names.size());
  names.push_back(text);
  named.push_back({copy_of < 0 ? index : copy_of, role});
  return index;
}

void RankRecord::append(const RankRecord& later) {
  const auto name = static_cast<int32_t>(names.size());
  const auto issue = static_cast<int64_t>(issues.size());
  const auto value = static_cast<int64_t>(values.size());
  const auto number = static_cast<int64_t>(floats.size());
  names.insert(names.end(), later.names.begin(), later.names.end());
  for (NamedValue n : later.named) {
    n.original += name;
    named.push_back(n);
  }
  for (RecordedIssue i : later.issues) {
    i.title += name;
    i.first += value;
    issues.push_back(i);
  }
  for (RecordedValue v : later.values) {
    v.name += name;
    v.root += name;
    values.push_back(v);
  }
  for (RecordedPiece p : later.pieces) {
    p.name += name;
    p.slot += name;
    p.root += name;
    p.first += number;
    p.at += issue;
    pieces.push_back(p);
  }
  floats.insert(floats.end(), later.floats.begin(), later.floats.end());
  steps.insert(steps.end(), later.steps.begin(), later.steps.end());
  for (RecordedTerm t : later.terms) {
    t.name += name;
    terms.push_back(t);
  }
  if (error.empty()) error = later.error;
  if (fault.empty()) fault = later.fault;
}

std::string RankRecord::to_bytes() const {
  std::string bytes, joined;
  for (const std::string& name : names) joined += name + '\n';
  put(bytes, joined.data(), joined.size());
  for_lists(*this, [&](const auto& list) { put(bytes, list); });
  put(bytes, error.data(), error.size());
  put(bytes, fault.data(), fault.size());
  return bytes;
}

RankRecord RankRecord::from_bytes(std::string_view bytes) {
  Reader reader(bytes);
  RankRecord record;
  const std::string joined = reader.text();
  for (size_t begin = 0; begin < joined.size();) {
    const size_t end = joined.find('\n', begin);
    record.names.push_back(joined.substr(begin, end - begin));
    begin = end + 1;
  }
  for_lists(record, [&]<class T>(std::vector<T>& list) { list = reader.list<T>(); });
  record.error = reader.text();
  record.fault = reader.text();
  return record;
}

}  // namespace dstrain
