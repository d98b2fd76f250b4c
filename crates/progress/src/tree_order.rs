//! The order of tasks in a snapshot: every task after its parent, siblings in the order of their creation.

use std::sync::Arc;

use crate::task_cell::Cell;

/// Kept from one snapshot to the next, since it changes only when a task is added.
#[derive(Debug, Default)]
pub(crate) struct TreeOrder {
    /// The cell at each position.
    pub(crate) cells: Vec<usize>,
    /// The position of its parent.
    pub(crate) parents: Vec<Option<usize>>,
}

impl TreeOrder {
    /// Follows a list of cells that may have grown.
    pub(crate) fn update(&mut self, cells: &[Arc<Cell>]) {
        if self.cells.len() != cells.len() {
            self.rebuild(cells);
        }
    }

    fn rebuild(&mut self, cells: &[Arc<Cell>]) {
        let (first_child, next_sibling) = links(cells);
        let mut places = vec![0; cells.len()];
        self.cells.clear();
        self.parents.clear();
        let mut stack: Vec<usize> = cells.first().map(|root| root.index).into_iter().collect();
        while let Some(index) = stack.pop() {
            places[index] = self.cells.len();
            self.cells.push(index);
            self.parents.push(cells[index].parent.map(|parent| places[parent]));
            stack.extend(next_sibling[index]);
            stack.extend(first_child[index]);
        }
    }
}

/// First children and next siblings. Going backwards puts each child before its younger siblings.
fn links(cells: &[Arc<Cell>]) -> (Vec<Option<usize>>, Vec<Option<usize>>) {
    let mut first_child = vec![None; cells.len()];
    let mut next_sibling = vec![None; cells.len()];
    for cell in cells.iter().rev() {
        if let Some(parent) = cell.parent {
            next_sibling[cell.index] = first_child[parent].replace(cell.index);
        }
    }
    (first_child, next_sibling)
}
