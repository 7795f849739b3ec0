#include "runtime/data/arrays/array_shard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/lfs_pointer.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/core/formats/zip_archive.h"
#include "runtime/data/arrays/npy.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".npy";
constexpr ZipOrigin kArchive{"the data file", "np.savez",
                             "write it with np.savez, not with np.savez_compressed"};

constexpr std::pair<std::string_view, ElementType> kTensorTypes[] = {
    {"BOOL", ElementType::boolean}, {"U8", ElementType::u8},     {"I8", ElementType::i8},
    {"U16", ElementType::u16},      {"I16", ElementType::i16},   {"U32", ElementType::u32},
    {"I32", ElementType::i32},      {"U64", ElementType::u64},   {"I64", ElementType::i64},
    {"F16", ElementType::f16},      {"BF16", ElementType::bf16}, {"F32", ElementType::f32},
    {"F64", ElementType::f64}};

std::optional<ElementType> type_of_tensor(std::string_view name) {
  const auto* const found =
      std::ranges::find(kTensorTypes, name, &std::pair<std::string_view, ElementType>::first);
  if (found == std::end(kTensorTypes)) return std::nullopt;
  return found->second;
}

std::string_view bytes_of(const DataFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.bytes())};
}

std::string without_ending(std::string_view name) {
  return std::string(name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name);
}

// Returns the array of a .npy file that is the bytes [begin, begin + bytes) of `file`. `label` is it in messages.
StoredArray npy_array(const DataFile& file, int64_t begin, int64_t bytes, std::string name,
                      const std::string& label) {
  NpyHeader header = parse_npy(
      bytes_of(file).substr(static_cast<size_t>(begin), static_cast<size_t>(bytes)), label);
  return {.name = std::move(name),
          .type_name = std::move(header.descr),
          .type = header.type,
          .fortran_order = header.fortran_order,
          .shape = std::move(header.shape),
          .file = &file,
          .begin = begin + header.begin};
}

void read_safetensors(ArrayShard& shard) {
  const DataFile& file = *shard.files.front();
  const std::string_view bytes = bytes_of(file);
  const int64_t json = safetensors_header_bytes(bytes.substr(0, 8), file.bytes(), shard.path);
  const SafetensorsHeader header =
      parse_safetensors(bytes.substr(8, static_cast<size_t>(json)), file.bytes(), shard.path);
  for (const SafetensorsTensor& tensor : header.tensors)
    shard.arrays.push_back({.name = tensor.name,
                            .type_name = std::string(tensor.type.name),
                            .type = type_of_tensor(tensor.type.name),
                            .shape = tensor.shape,
                            .file = &file,
                            .begin = tensor.begin});
}

void read_npz(ArrayShard& shard) {
  const DataFile& file = *shard.files.front();
  const ZipArchive archive(shard.path, kArchive);
  for (const ZipEntry& entry : archive.entries()) {
    const std::string label = fmt::format("{}, entry \"{}\"", shard.path, shown_text(entry.name));
    if (!entry.name.ends_with(kEnding))
      fail_user("{} is no array: expected an archive of .npy files, which np.savez writes", label);
    if (entry.bytes > file.bytes() - entry.offset)
      fail_user("{} has become shorter while it was opened", shard.path);
    shard.arrays.push_back(
        npy_array(file, entry.offset, entry.bytes, without_ending(entry.name), label));
  }
}

// What a file is that is none with arrays, as far as its name tells.
std::string advice_for(const std::string& path) {
  const std::string ending = lower_case(fs::path(path).extension().string());
  if (ending == ".pt" || ending == ".pth" || ending == ".bin")
    return "write tensors of PyTorch with safetensors.torch.save_file";
  if (ending == ".h5" || ending == ".hdf5" || ending == ".parquet" || ending == ".csv" ||
      ending == ".arrow")
    return "read it in Python, and write its columns with np.savez";
  return "np.savez and safetensors write such files";
}

void read_file(ArrayShard& shard) {
  shard.files.push_back(std::make_unique<DataFile>(shard.path));
  const DataFile& file = *shard.files.front();
  const std::string_view bytes = bytes_of(file);
  refuse_lfs_pointer(bytes.substr(0, 64), shard.path);
  if (is_npy(bytes))
    shard.arrays.push_back(npy_array(file, 0, file.bytes(), "0", shard.path));
  else if (bytes.starts_with("PK"))
    read_npz(shard);
  else if (shard.path.ends_with(".safetensors") || (bytes.size() > 8 && bytes[8] == '{'))
    read_safetensors(shard);
  else
    fail_user("the data file {} is no .safetensors, .npz or .npy file: {}", shard.path,
              advice_for(shard.path));
  file.check_whole();
}

void read_folder(ArrayShard& shard) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(shard.path, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(kEnding) && !name.starts_with('.')) paths.push_back(at->path().string());
  }
  if (error) fail_user("cannot read the data folder {}: {}", shard.path, error.message());
  if (paths.empty())
    fail_user(
        "the data folder {} has no .npy file: expected one for each array; files of another "
        "format are named one by one, or as {}/*.safetensors",
        shard.path, shard.path);
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    shard.files.push_back(std::make_unique<DataFile>(path));
    const DataFile& file = *shard.files.back();
    refuse_lfs_pointer(bytes_of(file).substr(0, 64), path);
    shard.arrays.push_back(
        npy_array(file, 0, file.bytes(), without_ending(fs::path(path).filename().string()), path));
    file.check_whole();
  }
}

// Returns the number that a name is: of "7" or "arr_7"; -1: it is none.
int64_t number_of(std::string_view name) {
  if (name.starts_with("arr_")) name.remove_prefix(4);
  const bool plain = !name.empty() && name.size() < 8 && (name.size() == 1 || name[0] != '0') &&
                     std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
  return plain ? std::stoll(std::string(name)) : -1;
}

}  // namespace

const StoredArray* ArrayShard::find(std::string_view name) const {
  const auto found = std::ranges::find(arrays, name, &StoredArray::name);
  return found == arrays.end() ? nullptr : &*found;
}

std::vector<const StoredArray*> ArrayShard::numbered() const {
  std::vector<const StoredArray*> list(arrays.size());
  for (const StoredArray& array : arrays) {
    const int64_t number = number_of(array.name);
    if (number < 0 || number >= std::ssize(list) || list[static_cast<size_t>(number)] != nullptr)
      return {};
    list[static_cast<size_t>(number)] = &array;
  }
  return list;
}

ArrayShard open_array_shard(const std::string& path) {
  ArrayShard shard{.path = path, .files = {}, .arrays = {}};
  std::error_code error;
  if (fs::is_directory(path, error))
    read_folder(shard);
  else
    read_file(shard);
  std::ranges::sort(shard.arrays, {}, [](const StoredArray& array) {
    return std::pair(number_of(array.name), std::string_view(array.name));
  });
  return shard;
}

}  // namespace dstrain
