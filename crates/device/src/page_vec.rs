//! A list in pages of its own, which go back to the system with it (`pages` tells why not on the heap). For lists of a
//! job's many small things: where each of a memtable's objects goes, say.

#![expect(unsafe_code, reason = "pages have no type of their own")]

use crate::{ALIGNMENT, AlignedBuf};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A list that grows. An empty one has no pages.
pub struct PageVec<T: Copy> {
    pages: Option<AlignedBuf>,
    len: usize,
    items: PhantomData<T>,
}

impl<T: Copy> PageVec<T> {
    /// Room for `items` without another step; of a long list, pages that are not reached take no memory.
    pub fn with_capacity(items: usize) -> Self {
        let mut made = Self::default();
        if items > 0 {
            made.grow(items);
        }
        made
    }

    fn capacity(&self) -> usize {
        self.pages.as_ref().map_or(0, |pages| pages.capacity() / size_of::<T>())
    }

    /// Room for `items` together, of which there are more than there are now.
    fn grow(&mut self, items: usize) {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= ALIGNMENT) };
        debug_assert!(items > self.len);
        let more = AlignedBuf::zeroed(items.saturating_mul(size_of::<T>()));
        if let Some(pages) = &self.pages {
            let used = self.len * size_of::<T>();
            // SAFETY: both have so many bytes, one is not the other, and items may be copied byte by byte.
            unsafe { std::ptr::copy_nonoverlapping(pages.start().as_ptr(), more.start().as_ptr(), used) };
        }
        self.pages = Some(more);
    }

    /// Appends an item.
    pub fn push(&mut self, item: T) {
        if self.len == self.capacity() {
            // By half as much again, so that many small steps copy little.
            self.grow(self.len + self.len / 2 + 1);
        }
        if let Some(pages) = &self.pages {
            // SAFETY: `len` is below the capacity, so the item's bytes lie within the pages, which are ours alone; they
            // begin at an address that suits any type that `grow` lets in, and so does each multiple of its size
            // behind.
            unsafe { pages.start().cast::<T>().add(self.len).write(item) };
            self.len += 1;
        }
    }

    /// Appends copies of all of these.
    pub fn extend_from_slice(&mut self, items: &[T]) {
        let len = self.len + items.len();
        if len > self.capacity() {
            self.grow(len.max(self.len + self.len / 2));
        }
        if let Some(pages) = &self.pages {
            // SAFETY: there is room for `len` items, which lie as `push` says; the pages are ours alone, so `items` is
            // elsewhere, and items may be copied byte by byte.
            unsafe {
                let to = pages.start().cast::<T>().add(self.len);
                std::ptr::copy_nonoverlapping(items.as_ptr(), to.as_ptr(), items.len());
            }
            self.len = len;
        }
    }

    /// Forgets all items from the `len`th on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Forgets all items, and gives the pages back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<T: Copy> Default for PageVec<T> {
    fn default() -> Self {
        Self { pages: None, len: 0, items: PhantomData }
    }
}

impl<T: Copy> Deref for PageVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.pages {
            // SAFETY: `push` has written the first `len` items there, in this order, where they are aligned.
            Some(pages) => unsafe { std::slice::from_raw_parts(pages.start().cast().as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl<T: Copy> DerefMut for PageVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &self.pages {
            // SAFETY: as in `deref`, and `&mut self` excludes any other reference.
            Some(pages) => unsafe { std::slice::from_raw_parts_mut(pages.start().cast().as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

impl<T: Copy> Extend<T> for PageVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl<T: Copy> FromIterator<T> for PageVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items = items.into_iter();
        let mut made = Self::with_capacity(items.size_hint().0);
        made.extend(items);
        made
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for PageVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_list_that_a_vec_is() {
        let text = "what an item points at outlives the list";
        // Of a size that no page is a multiple of, so that items straddle pages.
        let item = |i: usize| (i as u32, i as u8, &text[i % text.len()..]);
        let (mut list, mut model) = (PageVec::default(), Vec::new());
        assert!(list.is_empty() && format!("{list:?}") == "[]");
        for i in 0..if cfg!(miri) { 700 } else { 30_000 } {
            list.push(item(i));
            model.push(item(i));
        }
        assert!(*list == *model);
        list.sort_unstable_by_key(|item| std::cmp::Reverse(item.0));
        model.reverse();
        assert!(*list == *model);
        list.truncate(500);
        list.truncate(600);
        model.truncate(500);
        list.extend((0..9).map(item));
        model.extend((0..9).map(item));
        assert!(*list == *model && *model.iter().copied().collect::<PageVec<_>>() == *model);
        let more: Vec<_> = (0..5000).map(item).collect();
        for some in [&more[..0], &more[..7], &more] {
            list.extend_from_slice(some);
            model.extend_from_slice(some);
            assert!(*list == *model);
        }
        list.clear();
        list.extend_from_slice(&[]);
        assert!(list.is_empty());
        list.push(item(3));
        assert_eq!((list[0], list.len()), (item(3), 1));
    }
}
