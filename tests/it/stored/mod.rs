//! What is stored can be read, and a row that cannot be read stops nothing else.

mod outputs;
mod rows;
