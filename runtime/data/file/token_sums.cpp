#include "runtime/data/file/token_sums.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/file/data_file.h"

namespace dstrain {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLargestSums = int64_t{64} << 20;

std::string hex_text(uint64_t value) {
  return fmt::format("{:016x}", value);
}

// Throws std::invalid_argument if the text is no hexadecimal number.
uint64_t hex_value(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument("no checksum");
  return value;
}

ordered_json json_of(const FileSums& sums) {
  ordered_json pieces = ordered_json::array();
  for (const uint64_t piece : sums.pieces) pieces.push_back(hex_text(piece));
  return {{"bytes", sums.bytes}, {"checksum", hex_text(sums.whole)}, {"pieces", pieces}};
}

// Throws std::exception for any other value.
FileSums sums_in(const nlohmann::json& json) {
  FileSums sums{.bytes = json.at("bytes").get<int64_t>(),
                .whole = hex_value(json.at("checksum").get<std::string>()),
                .pieces = {}};
  for (const auto& piece : json.at("pieces"))
    sums.pieces.push_back(hex_value(piece.get<std::string>()));
  if (sums.bytes <= 0 || std::ssize(sums.pieces) != pieces_of_file(sums.bytes))
    throw std::invalid_argument("another number of pieces");
  return sums;
}

FileSums sums_of_file(const std::string& path) {
  const DataFile file(path);
  FileSums sums = sums_of(file.data(), file.bytes());
  file.check_whole();
  return sums;
}

}  // namespace

std::string sums_path(const std::string& token_file) {
  return token_file + ".sums";
}

TokenSums sums_of_token_file(const std::string& token_file, int64_t ids) {
  TokenSums sums{.ids = ids,
                 .tokens = sums_of_file(token_file),
                 .documents = sums_of_file(token_file + ".documents"),
                 .targets = {}};
  const std::string targets = token_file + ".targets";
  if (std::error_code none; std::filesystem::exists(targets, none))
    sums.targets = sums_of_file(targets);
  return sums;
}

std::string sums_text(const TokenSums& sums) {
  ordered_json json = {{"piece_bytes", kPieceBytes},
                       {"ids", sums.ids},
                       {"tokens", json_of(sums.tokens)},
                       {"documents", json_of(sums.documents)}};
  if (sums.targets) json["targets"] = json_of(*sums.targets);
  return json.dump() + "\n";
}

std::optional<TokenSums> parse_sums(std::string_view text) try {
  const auto json = nlohmann::json::parse(text);
  if (json.at("piece_bytes").get<int64_t>() != kPieceBytes) return std::nullopt;
  TokenSums sums{.ids = json.at("ids").get<int64_t>(),
                 .tokens = sums_in(json.at("tokens")),
                 .documents = sums_in(json.at("documents")),
                 .targets = {}};
  if (json.contains("targets")) sums.targets = sums_in(json.at("targets"));
  return sums;
} catch (const std::exception&) {
  return std::nullopt;
}

std::optional<TokenSums> sums_beside(const std::string& token_file) {
  const std::string path = sums_path(token_file);
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return std::nullopt;
  std::optional<TokenSums> sums =
      parse_sums(read_input_file(path, "the checksums of a token file", kLargestSums));
  if (!sums)
    fail_user(
        "{} does not hold the checksums of {}: remove both, so that the next run makes them anew "
        "of the text",
        path, token_file);
  return sums;
}

}  // namespace dstrain
