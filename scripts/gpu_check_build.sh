# How scripts/gpu_check.sh, which reads this file, gets its programs into "$build/bin".

# Unpacks what scripts/pack_gpu_deps.sh has packed, and skips with the reason if it does not run on this machine.
unpack() {
  local name found reason
  if [[ -z $deps || ! -e $deps/programs.tar.xz ]]; then skip 'there are none: they are built from source'; fi
  mkdir -p "$build"
  rm -rf "$build/bin" "$build/lib"
  tar -C "$build" -xf "$deps/programs.tar.xz"
  # cuBLASLt and NCCL are this machine's, or those of pip's packages: the programs look for libraries in lib first.
  while read -r name; do
    found=$(nvidia_library "$name")
    if [[ -n $found ]]; then ln -sf "$found" "$build/lib/$name"; fi
  done <"$build/lib/not_packed"
  if reason=$(try_programs 2>&1); then return 0; fi
  rm -rf "$build/bin" "$build/lib"
  skip "they do not run here and are built from source: $(tail -1 <<<"$reason")"
}
try_programs() {
  # The second says whether there is code for this GPU.
  "$build/bin/dstrain" --version && { [[ -z $gpu ]] || "$build/bin/bench_cuda" --cases '^add C=768$'; }
}
nvidia_library() { # name
  local folder
  for folder in /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/cuda/targets/x86_64-linux/lib \
    $(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null | tr ' ' '\n' | sed 's|$|/*/lib|'); do
    if [[ -e $folder/$1 ]]; then realpath "$folder/$1" && return; fi
  done
}

configure() {
  # Code for this GPU alone; without one, for Hopper.
  local architecture=90
  if [[ -n $gpu ]]; then
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  fi
  local options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DDSTRAIN_CUDA=ON
    -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architecture"
    -DDSTRAIN_WARNINGS_AS_ERRORS=OFF)
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if [[ $mpi == no ]] || ! command -v mpicc >/dev/null; then options+=(-DDSTRAIN_MPI=OFF); fi
  if [[ -n $deps ]]; then
    local libraries=$deps/usr/lib/x86_64-linux-gnu
    options+=(-DCMAKE_PREFIX_PATH="$deps/usr" -DBoost_NO_SYSTEM_PATHS=ON
      -DCMAKE_LIBRARY_PATH="$libraries" -DCMAKE_INCLUDE_PATH="$deps/usr/include" -DCMAKE_BUILD_RPATH="$libraries"
      -DCMAKE_CXX_FLAGS="-isystem $deps/usr/include" -DCMAKE_CUDA_FLAGS="-isystem $deps/usr/include")
  fi
  cmake "${options[@]}"
}

# The programs of this part. The emulated device is tested only if there is no GPU.
programs() {
  echo dstrain
  case $part in
    figures) echo bench_cuda ;;
    checks)
      printf "test_%s_$device\n" kernels products attention
      if grep -qs '^NCCL_LIBRARY.*=/' "$build/CMakeCache.txt"; then echo test_nccl; fi
      ;;
  esac
}
build_all() {
  local targets
  mapfile -t targets < <(programs)
  if ! cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" | tee "$work/build"; then
    grep -m1 -E 'error[: ]|undefined reference' "$work/build" # becomes the last line of the log, the reason
    return 1
  fi
}
