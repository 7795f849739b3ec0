#include "runtime/core/formats/zip_archive.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "runtime/core/error.h"
#include "runtime/core/files/lfs_pointer.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {
namespace {

constexpr int64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46,
                  kLocalBytes = 30, kLongestComment = 65535;
constexpr int64_t kMostEntries = 1'000'000, kLargestDirectory = int64_t{1} << 28;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50,
                   kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint64_t kIn64 = 0xffffffff,
                   kCountIn64 = 0xffff;  // the value is in the record of 64 bits
constexpr uint16_t kEncrypted = 1 | 1 << 6 | 1 << 13;
constexpr uint16_t kExtra64 = 1;

// Returns `width` bytes of `bytes` at `at` as a number, the lowest byte first.
uint64_t little(std::string_view bytes, int64_t at, int width) {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(at + i)]);
  return value;
}

// The central directory: where it lies and how many entries it has.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
  int64_t end = 0;  // where the records that follow it begin
};

// An entry of the directory before its local header was looked at.
struct Listed {
  std::string name;
  int64_t local = 0, bytes = 0;
};

// Reads the directory of one archive.
class DirectoryReader {
 public:
  DirectoryReader(const InputFile& file, const ZipOrigin& origin)
      : file_(file), origin_(origin), size_(file.size()) {}

  std::vector<ZipEntry> read() {
    const Directory directory = find_directory();
    check_directory(directory);
    const std::string bytes =
        bytes_at(static_cast<int64_t>(directory.offset), static_cast<int64_t>(directory.bytes));
    std::vector<Listed> listed;
    int64_t at = 0;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      std::optional<Listed> entry = read_listed(bytes, at);
      if (entry) listed.push_back(std::move(*entry));
    }
    if (at != std::ssize(bytes))
      damaged("its directory has {} bytes behind its {} entries", std::ssize(bytes) - at,
              directory.entries);
    std::sort(listed.begin(), listed.end(),
              [](const Listed& a, const Listed& b) { return a.local < b.local; });
    std::vector<ZipEntry> entries;
    int64_t free = 0;
    for (Listed& entry : listed)
      entries.push_back(place(std::move(entry), free, static_cast<int64_t>(directory.offset)));
    std::sort(entries.begin(), entries.end(),
              [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
    for (size_t i = 1; i < entries.size(); ++i)
      if (entries[i].name == entries[i - 1].name)
        fail_user("{}: entry \"{}\" occurs twice", file_.path(), shown_text(entries[i].name));
    return entries;
  }

 private:
  template <class... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    fail_user("{} is damaged or cut short: {}", file_.path(),
              fmt::format(format, std::forward<Args>(args)...));
  }

  std::string bytes_at(int64_t offset, int64_t bytes) const {
    std::string text(static_cast<size_t>(bytes), '\0');
    file_.read_at(text.data(), bytes, offset);
    return text;
  }

  Directory find_directory() const {
    const int64_t tail_bytes = std::min(size_, kEndBytes + kLongestComment);
    const std::string tail = bytes_at(size_ - tail_bytes, tail_bytes);
    refuse_lfs_pointer(tail, file_.path());
    for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at)
      if (little(tail, at, 4) == kEndMark &&
          static_cast<int64_t>(little(tail, at + 20, 2)) == tail_bytes - at - kEndBytes)
        return read_end(std::string_view(tail).substr(static_cast<size_t>(at)),
                        size_ - tail_bytes + at);
    fail_user("{} is not an archive of {}, or is cut short: it does not end as a zip file does",
              file_.path(), origin_.writer);
  }

  Directory read_end(std::string_view record, int64_t at) const {
    Directory directory{little(record, 16, 4), little(record, 12, 4), little(record, 10, 2), at};
    if (little(record, 4, 2) != 0 || little(record, 6, 2) != 0)
      if (little(record, 4, 2) != kCountIn64) damaged("it is one part of an archive of several");
    if (at >= kLocatorBytes) {
      const std::string locator = bytes_at(at - kLocatorBytes, kLocatorBytes);
      if (little(locator, 0, 4) == kLocatorMark)
        return read_end64(little(locator, 8, 8), at - kLocatorBytes);
    }
    if (directory.offset == kIn64 || directory.bytes == kIn64 || directory.entries == kCountIn64)
      damaged("its last record refers to one of 64 bits, which is missing");
    return directory;
  }

  Directory read_end64(uint64_t at, int64_t locator) const {
    if (locator < kEnd64Bytes || at > static_cast<uint64_t>(locator - kEnd64Bytes))
      damaged("its record of 64 bits lies at byte {}, of {} before the locator", at, locator);
    const auto begin = static_cast<int64_t>(at);
    const std::string record = bytes_at(begin, kEnd64Bytes);
    if (little(record, 0, 4) != kEnd64Mark) damaged("its record of 64 bits is not at byte {}", at);
    return {little(record, 48, 8), little(record, 40, 8), little(record, 32, 8), begin};
  }

  void check_directory(const Directory& d) const {
    const auto end = static_cast<uint64_t>(d.end);
    if (d.offset > end || d.bytes > end - d.offset)
      damaged("its directory is stated at bytes [{}, {} + {}), and {} bytes come before its end",
              d.offset, d.offset, d.bytes, d.end);
    if (d.offset + d.bytes != end)
      damaged("{} bytes between its directory and its end belong to neither",
              end - d.offset - d.bytes);
    if (d.bytes > static_cast<uint64_t>(kLargestDirectory) ||
        d.entries > static_cast<uint64_t>(kMostEntries))
      fail_user("{} states {} entries in a directory of {} bytes, expected at most {} in {}",
                file_.path(), d.entries, d.bytes, kMostEntries, kLargestDirectory);
    if (d.entries > d.bytes / static_cast<uint64_t>(kEntryBytes))
      damaged("it states {} entries in a directory of {} bytes", d.entries, d.bytes);
  }

  // Reads the entry of the directory at `at`, and moves `at` behind it. Returns nothing for a folder.
  std::optional<Listed> read_listed(std::string_view directory, int64_t& at) const {
    const auto left = static_cast<int64_t>(directory.size()) - at;
    if (left < kEntryBytes || little(directory, at, 4) != kEntryMark)
      damaged("byte {} of its directory begins no entry", at);
    const auto name_bytes = static_cast<int64_t>(little(directory, at + 28, 2)),
               extra_bytes = static_cast<int64_t>(little(directory, at + 30, 2)),
               comment_bytes = static_cast<int64_t>(little(directory, at + 32, 2));
    if (left < kEntryBytes + name_bytes + extra_bytes + comment_bytes)
      damaged("the entry at byte {} of its directory ends behind the directory", at);
    const std::string_view record = directory.substr(static_cast<size_t>(at));
    Listed entry{std::string(record.substr(kEntryBytes, static_cast<size_t>(name_bytes))), 0, 0};
    check_name(entry.name);
    check_kind(entry.name, little(record, 8, 2), little(record, 10, 2));
    uint64_t packed = little(record, 20, 4), unpacked = little(record, 24, 4),
             local = little(record, 42, 4);
    read_extra(entry.name,
               record.substr(static_cast<size_t>(kEntryBytes + name_bytes),
                             static_cast<size_t>(extra_bytes)),
               {&unpacked, &packed, &local});
    if (packed != unpacked)
      fail_user("{}: entry \"{}\" is stored and has two sizes, {} and {} bytes", file_.path(),
                shown_text(entry.name), packed, unpacked);
    const auto size = static_cast<uint64_t>(size_);
    if (local > size || unpacked > size - local)
      damaged("entry \"{}\" is stated to have {} bytes after byte {}, and the file has {}",
              shown_text(entry.name), unpacked, local, size_);
    at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
    entry.local = static_cast<int64_t>(local);
    entry.bytes = static_cast<int64_t>(unpacked);
    if (!entry.name.ends_with('/')) return entry;
    if (entry.bytes != 0)
      fail_user("{}: the folder \"{}\" has bytes of its own", file_.path(), shown_text(entry.name));
    return std::nullopt;
  }

  // Gives the values that do not fit into 32 bits, in the order of the record, those of the extra field.
  void read_extra(const std::string& name, std::string_view extra,
                  std::initializer_list<uint64_t*> values) const {
    std::string_view large;
    while (extra.size() >= 4) {
      const uint64_t kind = little(extra, 0, 2), bytes = little(extra, 2, 2);
      extra.remove_prefix(4);
      if (bytes > extra.size()) break;
      if (kind == kExtra64) large = extra.substr(0, bytes);
      extra.remove_prefix(bytes);
    }
    for (uint64_t* value : values) {
      if (*value != kIn64) continue;
      if (large.size() < 8) damaged("entry \"{}\" lacks its size of 64 bits", shown_text(name));
      *value = little(large, 0, 8);
      large.remove_prefix(8);
    }
  }

  void check_name(std::string_view name) const {
    bool plain = !name.empty() && !name.starts_with('/');
    for (const char c : name)
      plain = plain && static_cast<unsigned char>(c) >= ' ' && c != '\\' && c != '\x7f';
    for (size_t begin = 0; plain && begin < name.size();) {
      const size_t end = std::min(name.find('/', begin), name.size());
      const std::string_view part = name.substr(begin, end - begin);
      plain = !part.empty() && part != "." && part != "..";
      begin = end + 1;
    }
    if (!plain)
      fail_user("{}: the name of entry \"{}\" leads elsewhere or has characters that no name has",
                file_.path(), shown_text(name));
  }

  void check_kind(const std::string& name, uint64_t flags, uint64_t method) const {
    if ((flags & kEncrypted) != 0)
      fail_user("{}: entry \"{}\" is encrypted, expected a file as {} writes it", file_.path(),
                shown_text(name), origin_.writer);
    if (method != 0)
      fail_user("{}: entry \"{}\" is compressed (method {}), expected a file as {} writes it: {}",
                file_.path(), shown_text(name), method, origin_.writer, origin_.uncompress);
  }

  // Returns where the bytes of an entry lie, behind its local header. `free` is the first byte behind the entry before,
  // and becomes the first behind this one; `end` is where the directory begins.
  ZipEntry place(Listed entry, int64_t& free, int64_t end) const {
    if (entry.local < free)
      fail_user("{}: entry \"{}\" at byte {} overlaps the one before it, which ends at {}",
                file_.path(), shown_text(entry.name), entry.local, free);
    if (entry.local > end - kLocalBytes)
      damaged("entry \"{}\" begins at byte {}, and the directory at {}", shown_text(entry.name),
              entry.local, end);
    const std::string header = bytes_at(entry.local, kLocalBytes);
    if (little(header, 0, 4) != kLocalMark)
      damaged("entry \"{}\" does not begin at byte {}", shown_text(entry.name), entry.local);
    check_kind(entry.name, little(header, 6, 2), little(header, 8, 2));
    const auto name_bytes = static_cast<int64_t>(little(header, 26, 2)),
               extra_bytes = static_cast<int64_t>(little(header, 28, 2));
    const int64_t begin = entry.local + kLocalBytes + name_bytes + extra_bytes;
    if (begin > end || entry.bytes > end - begin)
      damaged("the {} bytes of entry \"{}\" at byte {} reach into the directory at {}", entry.bytes,
              shown_text(entry.name), begin, end);
    if (bytes_at(entry.local + kLocalBytes, name_bytes) != entry.name)
      damaged("entry \"{}\" has another name at byte {}", shown_text(entry.name), entry.local);
    free = begin + entry.bytes;
    return {std::move(entry.name), begin, entry.bytes};
  }

  const InputFile& file_;
  const ZipOrigin& origin_;
  int64_t size_;
};

}  // namespace

ZipArchive::ZipArchive(const std::string& path, const ZipOrigin& origin)
    : file_(path, origin.what, fmt::format("{} writes one", origin.writer)),
      entries_(DirectoryReader(file_, origin).read()) {}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto it =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const ZipEntry& e, std::string_view wanted) { return e.name < wanted; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

std::string ZipArchive::read(const ZipEntry& entry, int64_t limit) const {
  if (entry.bytes > limit)
    fail_user("{}: entry \"{}\" has {} bytes, expected at most {}", path(), shown_text(entry.name),
              entry.bytes, limit);
  std::string text(static_cast<size_t>(entry.bytes), '\0');
  file_.read_at(text.data(), entry.bytes, entry.offset);
  return text;
}

void ZipArchive::read_at(const ZipEntry& entry, void* data, int64_t bytes, int64_t offset) const {
  if (offset < 0 || bytes < 0 || offset > entry.bytes || bytes > entry.bytes - offset)
    fail_user("{}: entry \"{}\" has {} bytes, and {} at byte {} are expected of it", path(),
              shown_text(entry.name), entry.bytes, bytes, offset);
  file_.read_at(data, bytes, entry.offset + offset);
}

}  // namespace dstrain
