//! What is the same in all channels to people: one suite for all of them. What a channel has beside it is tested in the
//! folder of the channel.

mod contract;
