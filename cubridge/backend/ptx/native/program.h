// A program as the machine runs it: operands are places in a warp's register file, opcodes are rows of the table.
#pragma once
#include <string>
#include <vector>

#include "base.h"

namespace ptx {
struct Step;

// What an instruction does with control.
enum class Next {
    go_on,
    wait,    // not now: the same instruction again when something has happened
    gather,  // not before the other lanes of its warp are here
    leave,   // the lanes are done
};

// What undefined lanes of operands do. flow: the results are undefined; strict: a fault; own: the row says.
enum class Undefined { flow, strict, own };

using Run = Next (*)(Step&);

// How an instruction treats registers of an unfinished wgmma.
enum class Touch { uses, moves, is_wgmma };

// One instruction of the table. `operands`: what it takes, see rows.h. `a`, `b`, `c`: what rows of one family differ in.
struct Row {
    std::string name;
    std::string operands;
    std::string meaning;
    Run run = nullptr;
    Undefined undefined = Undefined::flow;
    int a = 0, b = 0, c = 0;
    Touch touch = Touch::uses;
    bool computes = false;  // its results from its operands, and nothing else
};

// A register, constant or predicate. `slot` -1: nobody wants the result.
struct Operand {
    s32 slot;
    s32 offset;  // bytes, of an address
    u8 bytes;    // a lane; 0: a predicate
    u8 negated;
    u8 is_address;
    u8 pad;
};

struct Instruction {
    const Row* row;
    s32 guard, negated, target;
    const Operand* x;  // results first
    int results, count;
};

struct Constant {
    s32 slot, kind;
    u64 value;
};

struct Program {
    std::vector<Instruction> code;
    std::vector<Operand> operands;
    std::vector<u32> offsets;  // of each register in a warp's file
    std::vector<u8> widths;
    std::vector<Constant> constants;
    std::vector<u8> data;  // global and constant variables
    u32 file_bytes = 0;
    int predicates = 0;
    u32 shared_bytes = 0, local_bytes = 0;
};
}  // namespace ptx
