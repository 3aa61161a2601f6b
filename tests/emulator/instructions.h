// What stands for instructions of NVIDIA's PTX in the machine: functions that emulated kernels call. Addresses of shared memory are the low 32
// bits of their place, as kernels compute them; `site` is the instruction.
#pragma once

#include "emulator/machine.h"

#include <cstdint>

namespace nestor::emulation {

// special registers
std::int32_t thread_index();
std::int32_t block_index();
std::int32_t block_count();
char* shared_memory();

// barriers and fences
void prepare_barrier(std::uint32_t address, std::int32_t count, Site site);
void expect_bytes(std::uint32_t address, std::int32_t bytes, Site site);
void arrive(std::uint32_t address, std::int32_t wanted, Site site);
void arrive_in_block(std::uint32_t address, std::int32_t rank, std::int32_t wanted, Site site);
void wait_phase(std::uint32_t address, std::int32_t parity, Site site);
void fence_inits();
void fence_async();
void block_barrier(Site site);
void barrier_sync(std::int32_t id, std::int32_t threads, Site site);
void barrier_arrive(std::int32_t id, std::int32_t threads, Site site);
void cluster_arrive(std::int32_t relaxed, Site site);
void cluster_wait(Site site);
void set_registers(std::int32_t count, std::int32_t increase, Site site);

// memory
void access(char* address, std::int64_t bytes, std::int32_t write, Site site);
std::uint32_t load_word(std::uint32_t address, Site site);
void load_piece(std::uint32_t address, std::uint32_t* words, Site site);
void store_word(std::uint32_t address, std::uint32_t word, Site site);
void store_half(std::uint32_t address, std::uint16_t half, Site site);
void store_global(char* address, const std::uint32_t* words, std::int32_t bytes, std::int32_t wanted, Site site);
void load_global(char* address, std::uint32_t* words, Site site);
std::uint32_t add_to_counter(char* address, Site site);
void reset_counter(char* address, std::int32_t wanted, Site site);

// what a warp does together
std::uint32_t shuffle(std::uint32_t value, std::int32_t lane_or_distance, std::int32_t butterfly, Site site);
std::int32_t vote_any(std::int32_t value, Site site);
std::uint32_t vote_ballot(std::int32_t value, Site site);
void warp_barrier(Site site);
void load_matrices(std::uint32_t address, std::int32_t count, std::int32_t transposed, std::uint32_t* words, Site site);
void store_matrices(std::uint32_t address, const std::uint32_t* words, Site site);
void multiply(std::int32_t bf16, const std::uint32_t* operands, float* sums, Site site);

// copies by threads: of `bytes`, zeros behind them up to `whole`
void copy_piece(std::uint32_t to, const char* from, std::int32_t bytes, std::int32_t whole, Site site);
void copy_piece_to(char* to, const char* from, std::int32_t whole, Site site);
void copy_part_to(char* to, const char* from, std::int32_t bytes, std::int32_t whole, Site site);
void commit_pieces();
void await_pieces(std::int32_t pending);

// stores to other blocks that report to a barrier there
void send(std::uint32_t address, std::int32_t rank, std::uint32_t barrier, const std::uint32_t* words, std::int32_t count,
          Site site);

// tensor copies
struct TensorMap {
  char* data = nullptr;
  int rank = 0, element = 2, swizzle = 0;            ///< bytes
  std::array<std::int64_t, 5> extents{}, strides{};  ///< innermost first; strides in bytes
  std::array<int, 5> box{}, steps{1, 1, 1, 1, 1};    ///< elements, and how far neighbours lie apart in the argument
};
void load_tile(std::uint32_t to, const TensorMap* map, const std::int32_t* coordinates, std::uint32_t barrier,
               std::int32_t blocks, Site site);
void store_tile(const TensorMap* map, const std::int32_t* coordinates, std::uint32_t from, Site site);
void commit_stores();
void await_stores(std::int32_t pending, Site site);

// products of groups of four warps
struct ProductForm {
  std::int32_t columns = 0, bf16 = 0, first_in_registers = 0, adds = 0, first_by_row = 0, second_by_column = 0;
};
/// `sums`: what the thread holds, and then words that stand for registers under way. `operands`: words of the first operand or its
/// descriptor in two words, then the second one's. `sources`: numbers of the instructions that make the registers it reads.
void product(const ProductForm* form, float* sums, const std::uint32_t* operands, const std::uint32_t* sources,
             std::int32_t count, Site site);
void products_fence(Site site);
void products_commit(Site site);
void products_wait(std::int32_t pending, Site site);
/// The register's value, which must not be under way.
float settled(float value, Site site);
void settle_registers(float* values, std::int32_t count, Site site);
/// An instruction that makes a register of a product runs.
void defined(std::uint32_t source, Site site);

}  // namespace nestor::emulation
